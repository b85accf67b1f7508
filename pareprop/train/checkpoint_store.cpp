#include "pareprop/train/checkpoint_store.h"

#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <stdexcept>
#include <system_error>

#include "pareprop/io/atomic_file.h"
#include "pareprop/io/checksum.h"
#include "pareprop/io/file_descriptor.h"
#include "pareprop/io/input_file.h"
#include "pareprop/models/named_tensors.h"
#include "pareprop/models/weights.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kAverage = "ema.safetensors";
constexpr std::string_view kShardPrefix = "optimizer-";
constexpr const char* kState = "state.json";
constexpr std::string_view kPrefix = "step-";
// What killed processes leave has a name that goes on after the number: no checkpoint's.
constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string folder_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return std::string(kPrefix) + std::string(kDigits - std::min(kDigits, digits.size()), '0') +
         digits;
}

// "step-00000012/" has no file name, and would be what a link of that name points to.
fs::path without_slash(const fs::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

std::optional<std::int64_t> step_of(const fs::path& folder) {
  const std::string name = without_slash(folder).filename().string();
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [last, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (error != std::errc() || last != end || name != folder_name(step)) return std::nullopt;
  return step;
}

struct Numbered {
  std::int64_t step;
  fs::path folder;
};

// False: it is not there.
bool is_checkpoints_folder(const fs::path& folder) {
  const fs::file_status status = fs::symlink_status(folder);
  if (!fs::exists(status)) return false;
  if (fs::is_directory(status)) return true;
  throw std::runtime_error(folder.string() +
                           " is a link or a file; expected a folder of checkpoints. Move it away, "
                           "or choose another folder for the run");
}

std::vector<Numbered> newest_first(const fs::path& folder) {
  std::vector<Numbered> found;
  if (!is_checkpoints_folder(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (const auto step = step_of(entry.path())) found.push_back({*step, entry.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const Numbered& a, const Numbered& b) { return a.step > b.step; });
  return found;
}

void sync_folder(const fs::path& folder) {
  const io::FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened || (fsync(opened.get()) != 0 && errno != EINVAL)) {
    fail("'" + folder.string() + "' could not be synced to the disk");
  }
}

// Under a name of no checkpoint first: half of one must not look like one.
void remove_checkpoint(const fs::path& folder) {
  fs::path removed = folder;
  removed += kRemoved;
  std::error_code ignored;
  fs::remove_all(removed, ignored);
  fs::rename(folder, removed);
  fs::remove_all(removed);
}

void remove_leftovers(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path name = entry.path().filename();
    const bool is_left = name.extension() == kPartial || name.extension() == kRemoved;
    if (is_left && step_of(name.stem())) fs::remove_all(entry.path());
  }
}

// A folder that is removed unless it was given its final name.
class PartialFolder {
 public:
  static fs::path of(fs::path final_path) { return final_path += kPartial; }

  explicit PartialFolder(const fs::path& final_path) : final_(final_path), path_(of(final_path)) {
    fs::create_directory(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  void commit() {
    sync_folder(path_);
    if (!fs::exists(final_)) {
      fs::rename(path_, final_);
    } else if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
      // A file system that cannot exchange. Between the two renames this step has no checkpoint.
      remove_checkpoint(final_);
      fs::rename(path_, final_);
    }
    sync_folder(final_.parent_path());
  }

 private:
  fs::path final_, path_;
};

std::string shard_name(int number, int of) {
  if (of == 1) return kOptimizer;
  return std::string(kShardPrefix) + std::to_string(number) + "-of-" + std::to_string(of) +
         ".safetensors";
}

// Where the manifest lists one of so many shards, all of them; else the one file.
std::vector<std::string> optimizer_files(const Manifest& manifest) {
  int of = 1;
  for (const auto& [name, seal] : manifest.files) {
    if (!name.starts_with(kShardPrefix)) continue;
    const std::size_t at = name.rfind("-of-");
    if (at == std::string::npos) continue;
    std::from_chars(name.data() + at + 4, name.data() + name.size(), of);
    break;
  }
  constexpr int kMostShards = 1 << 16;
  std::vector<std::string> names;
  for (int i = 1; i <= std::clamp(of, 1, kMostShards); ++i) names.push_back(shard_name(i, of));
  return names;
}

std::string verify(const fs::path& folder, const Manifest& manifest) {
  const auto named = step_of(folder);
  if (named && *named != manifest.state.step) {
    return std::string(kState) + " is from step " + std::to_string(manifest.state.step) +
           ", but the name of the folder says another step";
  }
  std::vector<std::string> needed = optimizer_files(manifest);
  needed.emplace_back(kWeights);
  for (const std::string& name : needed) {
    if (!manifest.files.contains(name)) return std::string(kState) + " does not list " + name;
  }
  for (const auto& [name, seal] : manifest.files) {
    if (std::find(needed.begin(), needed.end(), name) == needed.end() && name != kAverage) {
      return std::string(kState) + " lists '" + name + "', which is not a file of a checkpoint";
    }
    if (!fs::is_regular_file(fs::symlink_status(folder / name))) {
      return name + " is missing or is not a regular file";
    }
    std::error_code error;
    const auto size = fs::file_size(folder / name, error);
    if (error) return name + " cannot be read: " + error.message();
    if (size != seal.size) {
      return name + " has " + std::to_string(size) + " bytes; expected " +
             std::to_string(seal.size);
    }
    if (io::hex(io::file_checksum(folder / name)) != seal.checksum) {
      return name + " is damaged: its checksum does not match";
    }
  }
  return {};
}

FileSeal seal_of(const fs::path& file) {
  return {.size = fs::file_size(file), .checksum = io::hex(io::file_checksum(file))};
}

// Runs `action` in all holders, and returns when all have done it. Where it fails in one, all
// throw: nobody goes on with half of a checkpoint.
template <typename Action>
void together(distributed::ProcessGroup& holders, const Action& action) {
  std::exception_ptr failure;
  try {
    action();
  } catch (...) {
    failure = std::current_exception();
  }
  const at::Tensor failed = at::zeros({holders.world()}, at::kLong);
  auto* const flags = failed.mutable_data_ptr<std::int64_t>();
  flags[holders.rank()] = failure ? 1 : 0;
  holders.all_reduce(failed)->wait();
  if (failure) std::rethrow_exception(failure);
  const auto* const end = flags + holders.world();
  const auto* const first = std::find(flags, flags + holders.world(), 1);
  if (first == end) return;
  throw std::runtime_error("the checkpoint was not saved, because rank " +
                           std::to_string(first - flags) +
                           " could not write its part; see its message");
}

void expect_seen(const fs::path& partial) {
  if (fs::exists(partial)) return;
  throw std::runtime_error("'" + partial.string() +
                           "' is not there: with --shard every process writes its part of a "
                           "checkpoint; expected one folder that all processes see");
}

// Of all holders, in their order.
std::vector<FileSeal> all_seals(const FileSeal& own, distributed::ProcessGroup& holders) {
  const std::int64_t digits = static_cast<std::int64_t>(own.checksum.size());
  const at::Tensor sizes = at::zeros({holders.world()}, at::kLong);
  const at::Tensor checksums = at::zeros({holders.world(), digits}, at::kByte);
  sizes.mutable_data_ptr<std::int64_t>()[holders.rank()] = static_cast<std::int64_t>(own.size);
  auto* const text = checksums.mutable_data_ptr<std::uint8_t>();
  std::copy(own.checksum.begin(), own.checksum.end(), text + holders.rank() * digits);
  // The others add zeros.
  holders.all_reduce(sizes)->wait();
  holders.all_reduce(checksums)->wait();
  std::vector<FileSeal> seals;
  for (int i = 0; i < holders.world(); ++i) {
    seals.push_back({.size = static_cast<std::uint64_t>(sizes.const_data_ptr<std::int64_t>()[i]),
                     .checksum = std::string(text + i * digits, text + (i + 1) * digits)});
  }
  return seals;
}

Manifest read_manifest(const fs::path& folder) {
  if (!fs::exists(folder / kState)) throw std::runtime_error("the file is missing");
  return parse_manifest(io::read_text_file(folder / kState, {.within = folder}));
}

}  // namespace

std::int64_t Trained::state_bytes() const {
  std::int64_t bytes = 0;
  const auto add = [&](const io::NamedTensors& state) {
    for (const auto& [name, tensor] : state) bytes += static_cast<std::int64_t>(tensor.nbytes());
  };
  add(optimizer.state());
  if (average != nullptr) add(average->state());
  return bytes;
}

CheckpointStore::CheckpointStore(fs::path folder, int keep)
    : folder_(std::move(folder)), keep_(keep) {
  if (keep < 1) {
    throw std::invalid_argument("checkpoints: expected to keep 1 or more, got " +
                                std::to_string(keep));
  }
}

void CheckpointStore::save(const Trained& trained, TrainState state) {
  distributed::ProcessGroup& holders = trained.shares.holders();
  const bool leads = holders.rank() == 0;
  const fs::path path = folder_ / folder_name(state.step);
  const std::string shard = shard_name(holders.rank() + 1, holders.world());
  std::optional<PartialFolder> partial;  // of the one that leads
  together(holders, [&] {
    if (!leads) return;
    if (!is_checkpoints_folder(folder_)) fs::create_directories(folder_);
    remove_leftovers(folder_);
    partial.emplace(path);
  });
  const fs::path into = PartialFolder::of(path);
  FileSeal own;
  together(holders, [&] {
    expect_seen(into);
    if (leads) {
      models::save_weights(trained.model, into / kWeights);
      if (trained.average != nullptr) {
        io::write_safetensors(into / kAverage, trained.average->state());
      }
    }
    io::write_safetensors(into / shard, trained.optimizer.state());
    own = seal_of(into / shard);
  });
  const std::vector<FileSeal> seals = all_seals(own, holders);
  together(holders, [&] {
    if (!leads) return;
    const std::int64_t step = state.step;
    state.versions = {{"pareprop", PAREPROP_VERSION}, {"libtorch", TORCH_VERSION}};
    Manifest manifest{.state = std::move(state), .files = {}};
    for (int i = 0; i < holders.world(); ++i) {
      manifest.files[shard_name(i + 1, holders.world())] = seals[static_cast<std::size_t>(i)];
    }
    manifest.files[kWeights] = seal_of(into / kWeights);
    if (trained.average != nullptr) manifest.files[kAverage] = seal_of(into / kAverage);
    io::write_file(into / kState, format_manifest(manifest));
    partial->commit();

    // Later ones are of a run that this one does not continue; they are the user's to remove.
    int kept = 0;
    for (const Numbered& each : newest_first(folder_)) {
      if (each.step <= step && ++kept > keep_) remove_checkpoint(each.folder);
    }
  });
}

StoredCheckpoint open_checkpoint(const fs::path& folder) {
  const std::string what = "the checkpoint '" + folder.string() + "' is incomplete or damaged: ";
  if (fs::is_symlink(without_slash(folder))) {
    throw std::runtime_error(what + "it is a link; expected a folder");
  }
  Manifest manifest;
  try {
    manifest = read_manifest(folder);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(what + kState + ": " + error.what());
  }
  std::string fault;
  try {
    fault = verify(folder, manifest);
  } catch (const std::runtime_error& error) {
    fault = error.what();
  }
  if (!fault.empty()) throw std::runtime_error(what + fault);
  std::vector<std::string> optimizer = optimizer_files(manifest);
  return {.folder = folder, .state = std::move(manifest.state), .optimizer = std::move(optimizer)};
}

CheckpointSearch newest_whole(const fs::path& folder) {
  CheckpointSearch search;
  for (const Numbered& each : newest_first(folder)) {
    try {
      search.newest = open_checkpoint(each.folder);
      break;
    } catch (const std::runtime_error& error) {
      search.skipped.emplace_back(error.what());
    }
  }
  return search;
}

void load(const StoredCheckpoint& checkpoint, const Trained& trained) {
  const auto file = [&](const std::string& name) {
    return io::SafetensorsFile(checkpoint.folder / name);
  };
  models::load_weights(trained.model, file(kWeights));
  std::vector<io::SafetensorsFile> optimizer;
  for (const std::string& name : checkpoint.optimizer) optimizer.push_back(file(name));
  trained.optimizer.load_state(optimizer);
  if (trained.average == nullptr) return;
  if (fs::exists(checkpoint.folder / kAverage)) {
    trained.average->load_state(file(kAverage));
  } else {
    trained.average->restart();
  }
}

}  // namespace pareprop::train
