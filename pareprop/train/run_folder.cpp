#include "pareprop/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "pareprop/io/atomic_file.h"
#include "pareprop/io/input_file.h"
#include "pareprop/io/leftovers.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.json";
constexpr const char* kClasses = "classes.json";
constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kModelWeights = "model.safetensors";
constexpr const char* kBestWeights = "best.safetensors";
constexpr const char* kCheckpoints = "checkpoints";

// What training writes, besides checkpoints. Names without an extension are folders.
constexpr const char* kWritten[] = {kConfig,       kClasses,      kTokenizer,   "metrics.jsonl",
                                    "tensorboard", kModelWeights, kBestWeights, "run.html",
                                    "trace.json",  "trace.svg"};

[[noreturn]] void fail(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// The folder itself, or the nearest one above it that is there.
fs::path nearest_existing(fs::path path) {
  path = fs::absolute(path).lexically_normal();
  while (!fs::exists(path) && path.has_relative_path()) path = path.parent_path();
  return path;
}

bool is_there(const fs::path& path) { return fs::exists(fs::symlink_status(path)); }

// A run does without its trace: a folder in its place is in the way, and left alone.
bool is_left_alone(const fs::path& path) {
  return path.stem() == "trace" && fs::is_directory(fs::symlink_status(path));
}

bool is_folder_of_run(const fs::path& name) { return !name.has_extension(); }

std::string aside_name(const fs::path& name, int number) {
  return name.stem().string() + "-" + std::to_string(number) + name.extension().string();
}

[[noreturn]] void refuse(const fs::path& path, fs::file_type type, const std::string& expected) {
  const std::string is = type == fs::file_type::symlink     ? "a link"
                         : type == fs::file_type::directory ? "a folder"
                         : type == fs::file_type::fifo      ? "a pipe"
                         : type == fs::file_type::regular   ? "a file"
                                                            : "a device or socket";
  throw std::invalid_argument(path.string() + " is " + is + "; expected " + expected +
                              " of a training run, or nothing. Move it away, or choose another "
                              "folder with --out");
}

}  // namespace

fs::path config_file(const fs::path& run) { return run / kConfig; }
fs::path classes_file(const fs::path& run) { return run / kClasses; }
fs::path tokenizer_folder(const fs::path& run) { return run / kTokenizer; }
fs::path weights_file(const fs::path& run) { return run / kModelWeights; }
fs::path best_weights_file(const fs::path& run) { return run / kBestWeights; }
fs::path checkpoint_folder(const fs::path& run) { return run / kCheckpoints; }

void check_file_of_run(const fs::path& path) {
  const fs::file_type type = fs::symlink_status(path).type();
  if (type == fs::file_type::not_found || type == fs::file_type::regular) return;
  refuse(path, type, "a regular file");
}

void check_folder_of_run(const fs::path& path) {
  const fs::file_type type = fs::symlink_status(path).type();
  if (type == fs::file_type::not_found) return;
  if (type != fs::file_type::directory) refuse(path, type, "a folder");
  for (const auto& entry : fs::directory_iterator(path)) {
    if (!fs::is_directory(entry.symlink_status())) check_file_of_run(entry.path());
  }
}

void check_parts_of_run(const fs::path& folder) {
  for (const fs::path name : kWritten) {
    if (is_folder_of_run(name)) {
      check_folder_of_run(folder / name);
    } else if (!is_left_alone(folder / name)) {
      check_file_of_run(folder / name);
    }
  }
}

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) {
  if (fs::is_directory(path_)) {
    lock();
    return;
  }
  const fs::path above = nearest_existing(path_);
  if (!fs::is_directory(above)) {
    throw std::system_error(ENOTDIR, std::generic_category(), above.string());
  }
  if (access(above.c_str(), W_OK | X_OK) != 0) fail(above);
}

void RunFolder::lock() {
  if (lock_) return;
  const fs::path path = path_ / ".lock";
  lock_ = io::FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!lock_) fail(path);
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) fail(path);
  throw std::invalid_argument("another process trains in " + path_.string() +
                              ": wait until that process ends, or choose another folder (--out)");
}

void RunFolder::own() {
  fs::create_directories(path_);
  lock();
  folder_ = io::FileDescriptor(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_) fail(path_);
}

void RunFolder::check_there() const {
  struct stat owned {
  }, found{};
  const bool same = fstat(folder_.get(), &owned) == 0 && stat(path_.c_str(), &found) == 0 &&
                    owned.st_dev == found.st_dev && owned.st_ino == found.st_ino;
  if (same) return;
  throw std::runtime_error(
      "the folder of the run, " + path_.string() +
      ", was removed or replaced during the training: nothing more can be saved "
      "there. Start again with another folder (--out)");
}

std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const char* name : kWritten) {
    const fs::path path = folder / name;
    if (is_there(path) && !is_left_alone(path)) found.push_back(path);
  }
  if (is_there(checkpoint_folder(folder))) found.push_back(checkpoint_folder(folder));
  return found;
}

std::vector<std::string> set_aside(const fs::path& folder) {
  const auto is_free = [&](int number) {
    return std::none_of(std::begin(kWritten), std::end(kWritten), [&](const char* name) {
      return is_there(folder / aside_name(name, number));
    });
  };
  int number = 1;
  while (!is_free(number)) ++number;
  std::vector<std::string> names;
  for (const fs::path name : kWritten) {
    if (!is_there(folder / name) || is_left_alone(folder / name)) continue;
    const std::string& aside = names.emplace_back(aside_name(name, number));
    if (name == kConfig) {
      // A copy: the folder of a run is never without one, or the next attempt would not know it.
      io::write_file(folder / aside, io::read_text_file(folder / name, {.within = folder}));
    } else {
      fs::rename(folder / name, folder / aside);
    }
  }
  return names;
}

void remove_leftovers_of_run(const fs::path& folder) {
  for (const fs::path name : kWritten) {
    if (!is_folder_of_run(name)) io::remove_leftovers_of(folder / name);
  }
}

}  // namespace pareprop::train
