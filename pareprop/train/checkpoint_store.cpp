#include "pareprop/train/checkpoint_store.h"

#include <fcntl.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
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
  explicit PartialFolder(const fs::path& final_path) : final_(final_path), path_(final_path) {
    path_ += kPartial;
    fs::create_directory(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  const fs::path& path() const { return path_; }

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

std::string verify(const fs::path& folder, const Manifest& manifest) {
  const auto named = step_of(folder);
  if (named && *named != manifest.state.step) {
    return std::string(kState) + " is from step " + std::to_string(manifest.state.step) +
           ", but the name of the folder says another step";
  }
  for (const char* name : {kWeights, kOptimizer}) {
    if (!manifest.files.contains(name)) return std::string(kState) + " does not list " + name;
  }
  for (const auto& [name, seal] : manifest.files) {
    if (name != kWeights && name != kOptimizer && name != kAverage) {
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
  if (!is_checkpoints_folder(folder_)) fs::create_directories(folder_);
  remove_leftovers(folder_);
  PartialFolder partial(folder_ / folder_name(state.step));
  models::save_weights(trained.model, partial.path() / kWeights);
  io::write_safetensors(partial.path() / kOptimizer, trained.optimizer.state());
  if (trained.average != nullptr) {
    io::write_safetensors(partial.path() / kAverage, trained.average->state());
  }
  const std::int64_t step = state.step;
  state.versions = {{"pareprop", PAREPROP_VERSION}, {"libtorch", TORCH_VERSION}};
  Manifest manifest{.state = std::move(state), .files = {}};
  for (const auto& entry : fs::directory_iterator(partial.path())) {
    manifest.files[entry.path().filename().string()] = {
        .size = entry.file_size(), .checksum = io::hex(io::file_checksum(entry.path()))};
  }
  io::write_file(partial.path() / kState, format_manifest(manifest));
  partial.commit();

  // Later ones are of a run that this one does not continue; they are the user's to remove.
  int kept = 0;
  for (const Numbered& each : newest_first(folder_)) {
    if (each.step <= step && ++kept > keep_) remove_checkpoint(each.folder);
  }
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
  return {.folder = folder, .state = std::move(manifest.state)};
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
  const auto file = [&](const char* name) { return io::SafetensorsFile(checkpoint.folder / name); };
  models::load_weights(trained.model, file(kWeights));
  trained.optimizer.load_state(file(kOptimizer));
  if (trained.average == nullptr) return;
  if (fs::exists(checkpoint.folder / kAverage)) {
    trained.average->load_state(file(kAverage));
  } else {
    trained.average->restart();
  }
}

}  // namespace pareprop::train
