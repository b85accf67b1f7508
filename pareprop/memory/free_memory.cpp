#include "pareprop/memory/free_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>

#include "pareprop/memory/caching_allocator.h"

namespace pareprop::memory {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

// A line of a file that begins with `key`, behind it. Empty: there is none.
std::string line_after(const fs::path& file, const std::string& key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) return line.substr(key.size());
  }
  return {};
}

// The number that a text begins with, after spaces; "max" and "unlimited" are none, nor is one that
// is too large.
std::optional<std::int64_t> number_in(const std::string& text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  return number;
}

std::optional<std::int64_t> number_of(const fs::path& file) {
  return number_in(line_after(file, ""));
}

std::optional<std::int64_t> kib_of(const fs::path& file, const std::string& key) {
  const auto kib = number_in(line_after(file, key));
  if (!kib || *kib > kNoLimit / 1024) return std::nullopt;
  return *kib * 1024;
}

std::int64_t left_of(std::int64_t limit, std::int64_t used) {
  return std::max<std::int64_t>(0, limit - used);
}

// Where a kind of control groups is mounted.
struct Mount {
  fs::path point;
  std::string root;  // the group that is seen there
};

// mountinfo(5) writes spaces and the like as \040.
std::string unescaped(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Of cgroup2, or of the memory controller of cgroup.
std::optional<Mount> find_mount(const fs::path& root, bool version_2) {
  std::ifstream lines(root / "proc/self/mountinfo");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream first(line.substr(0, dash)), last(line.substr(dash + 3));
    std::string skipped, seen, point, type, source, options;
    first >> skipped >> skipped >> skipped >> seen >> point;
    last >> type >> source >> options;
    const bool memory = ("," + options + ",").find(",memory,") != std::string::npos;
    if (version_2 ? type != "cgroup2" : type != "cgroup" || !memory) continue;
    return Mount{root / fs::path(unescaped(point)).relative_path(), unescaped(seen)};
  }
  return std::nullopt;
}

// "/a/b": the group that this process is in. Lines are "4:memory,cpu:/a/b", of version 2 "0::/a/b".
std::string own_group(const fs::path& root, bool version_2) {
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    if (version_2 ? kinds == ",," : kinds.find(",memory,") != std::string::npos) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// Below the mount; "." where the group is not seen there, as in a container.
fs::path group_below(const std::string& group, const std::string& mount_root) {
  const fs::path below = fs::path(group).lexically_relative(mount_root);
  const bool outside = below.empty() || *below.begin() == "..";
  return outside ? fs::path(".") : below;
}

std::int64_t free_in_version_2(const fs::path& folder) {
  const std::int64_t limit = std::min(number_of(folder / "memory.max").value_or(kNoLimit),
                                      number_of(folder / "memory.high").value_or(kNoLimit));
  const auto used = number_of(folder / "memory.current");
  if (limit == kNoLimit || !used) return kNoLimit;
  const auto files = number_in(line_after(folder / "memory.stat", "inactive_file "));
  return left_of(limit, *used - std::min(*used, files.value_or(0)));
}

// memory.stat knows the limits of groups above also where these cannot be seen.
std::int64_t free_in_version_1(const fs::path& folder) {
  const fs::path stat = folder / "memory.stat";
  const std::int64_t limit =
      std::min(number_of(folder / "memory.limit_in_bytes").value_or(kNoLimit),
               number_in(line_after(stat, "hierarchical_memory_limit ")).value_or(kNoLimit));
  const auto used = number_of(folder / "memory.usage_in_bytes");
  if (limit == kNoLimit || !used) return kNoLimit;
  const auto files = number_in(line_after(stat, "total_inactive_file "));
  return left_of(limit, *used - std::min(*used, files.value_or(0)));
}

void add_groups(const fs::path& root, bool version_2, std::vector<MemoryLimit>& limits) {
  const auto mount = find_mount(root, version_2);
  if (!mount) return;
  fs::path group = group_below(own_group(root, version_2), mount->root);
  while (true) {
    const fs::path folder = mount->point / group;
    const std::int64_t free = version_2 ? free_in_version_2(folder) : free_in_version_1(folder);
    if (free != kNoLimit) {
      limits.push_back(
          {.name = "the control group /" + (group == "." ? "" : group.string()), .free = free});
    }
    if (group == ".") return;
    group = group.has_parent_path() ? group.parent_path() : fs::path(".");
    // Groups of version 1 may leave those below to themselves.
    if (!version_2 && number_of(mount->point / group / "memory.use_hierarchy") == 0) return;
  }
}

void add_own(const fs::path& root, const char* name, const std::string& limit,
             const std::string& used, std::vector<MemoryLimit>& limits) {
  const auto most = number_in(line_after(root / "proc/self/limits", limit));
  const auto now = kib_of(root / "proc/self/status", used);
  if (!most || !now) return;
  limits.push_back({.name = name, .free = left_of(*most, *now), .shared = false});
}

std::int64_t share_of(const MemoryLimit& limit, int processes) {
  return limit.shared ? limit.free / std::max(1, processes) : limit.free;
}

}  // namespace

std::vector<MemoryLimit> memory_limits(const fs::path& root) {
  std::vector<MemoryLimit> limits;
  if (const auto free = kib_of(root / "proc/meminfo", "MemAvailable:")) {
    limits.push_back({.name = "the memory of this machine", .free = *free});
  }
  add_groups(root, /*version_2=*/true, limits);
  add_groups(root, /*version_2=*/false, limits);
  add_own(root, "ulimit -v", "Max address space", "VmSize:", limits);
  add_own(root, "ulimit -d", "Max data size", "VmData:", limits);
  return limits;
}

MemoryLimit tightest(const std::vector<MemoryLimit>& limits, int processes) {
  MemoryLimit least;
  for (const MemoryLimit& limit : limits) {
    const std::int64_t share = share_of(limit, processes);
    if (share >= least.free) continue;
    least = limit;
    least.free = share;
  }
  return least;
}

std::int64_t free_memory() {
  const std::int64_t free = tightest(memory_limits()).free, unused = pool_usage().unused;
  return free > kNoLimit - unused ? kNoLimit : free + unused;
}

}  // namespace pareprop::memory
