#include "pareprop/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;

// What training writes, besides checkpoints/. What says how the network was made (config.json,
// classes.json, tokenizer/) is the same in a second attempt and need not be set aside.
constexpr const char* kMade[] = {"config.json", "classes.json", "tokenizer"};
constexpr const char* kResults[] = {"metrics.jsonl",    "tensorboard", "model.safetensors",
                                    "best.safetensors", "run.html",    "trace.json",
                                    "trace.svg"};

[[noreturn]] void fail(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

// The folder itself, or the nearest one above it that is there.
fs::path nearest_existing(fs::path path) {
  path = fs::absolute(path).lexically_normal();
  while (!fs::exists(path) && path.has_relative_path()) path = path.parent_path();
  return path;
}

}  // namespace

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
                              ": wait until it has ended, or choose another folder (--out)");
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
  throw std::runtime_error("the folder of the run, " + path_.string() +
                           ", was removed or replaced while it trained: nothing more can be saved "
                           "there. Start again with another folder (--out)");
}

std::vector<fs::path> files_of_run(const fs::path& folder) {
  std::vector<fs::path> found;
  const auto add = [&](const fs::path& path) {
    if (fs::exists(fs::symlink_status(path))) found.push_back(path);
  };
  for (const char* name : kMade) add(folder / name);
  for (const char* name : kResults) {
    // A folder named as a file of ours would be is in the way, and left alone.
    if (fs::path(name).has_extension() && fs::is_directory(folder / name)) continue;
    add(folder / name);
  }
  add(folder / "checkpoints");
  return found;
}

std::vector<std::string> set_aside(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path name : kResults) {
    if (!fs::exists(fs::symlink_status(folder / name))) continue;
    if (name.has_extension() && fs::is_directory(folder / name)) continue;
    for (int number = 1;; ++number) {
      const std::string aside =
          name.stem().string() + "-" + std::to_string(number) + name.extension().string();
      if (fs::exists(fs::symlink_status(folder / aside))) continue;
      fs::rename(folder / name, folder / aside);
      names.push_back(aside);
      break;
    }
  }
  return names;
}

}  // namespace pareprop::train
