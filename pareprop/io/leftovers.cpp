#include "pareprop/io/leftovers.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;

struct Temporary {
  std::string_view of;  // the file that was being written, or the beginning of a long name
  pid_t process = 0;
  bool is_locked_while_written = false;  // AtomicFile's, which have a second number
};

std::optional<Temporary> parse_temporary(std::string_view name) {
  constexpr std::string_view kPartial = ".partial-";
  const std::size_t at = name.rfind(kPartial);
  if (at == std::string_view::npos) return std::nullopt;
  Temporary found{.of = name.substr(0, at)};
  const char* const end = name.data() + name.size();
  auto [rest, error] = std::from_chars(name.data() + at + kPartial.size(), end, found.process);
  if (error != std::errc() || found.process <= 0) return std::nullopt;
  if (rest == end) return found;
  unsigned number = 0;
  found.is_locked_while_written = true;
  if (*rest != '-') return std::nullopt;
  const auto last = std::from_chars(rest + 1, end, number);
  return last.ec == std::errc() && last.ptr == end ? std::optional(found) : std::nullopt;
}

bool lives(const Temporary& temporary) {
  // Its own lock says more: in a container, processes before this one had the same number.
  if (temporary.process == getpid()) return !temporary.is_locked_while_written;
  return kill(temporary.process, 0) == 0 || errno != ESRCH;
}

// The number of a process says nothing where another machine shares the folder; its lock does.
void remove_unless_locked(const fs::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  if (flock(file.get(), LOCK_SH | LOCK_NB) == 0) unlink(path.c_str());
}

}  // namespace

void remove_leftovers_of(const fs::path& file) {
  const std::string wanted = file.filename().string();
  std::error_code error;
  fs::directory_iterator entry(file.has_parent_path() ? file.parent_path() : fs::path("."), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto temporary = parse_temporary(name);
    if (!temporary || lives(*temporary)) continue;
    const bool is_its =
        temporary->of == wanted || (name.size() == NAME_MAX && wanted.starts_with(temporary->of));
    if (is_its) remove_unless_locked(entry->path());
  }
}

}  // namespace pareprop::io
