#include "pareprop/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <stdexcept>
#include <string>
#include <system_error>

#include "pareprop/io/leftovers.h"

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;

// The file that is meant, behind links; also where the last one points to nothing yet.
fs::path resolved(fs::path path) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, error); ++i) {
    const fs::path to = fs::read_symlink(path, error);
    if (error) break;
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// Cut where name and suffix together would be too long for a file's name.
fs::path temporary_of(const fs::path& path, int number) {
  const std::string suffix = ".partial-" + std::to_string(getpid()) + "-" + std::to_string(number);
  std::string file = path.filename().string();
  file.resize(std::min(file.size(), NAME_MAX - suffix.size()));
  return folder_of(path) / (file + suffix);
}

// So that remove_leftovers_of() knows that somebody is at it. False: it took the file for a
// leftover before it was locked. Where the file system has no locks, the number of the process must
// do.
bool lock(const FileDescriptor& file) {
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat status {};
  return fstat(file.get(), &status) != 0 || status.st_nlink > 0;
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(resolved(path)) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error("cannot write '" + path.string() + "': " + why);
  };
  std::error_code ignored;
  const fs::file_status status = fs::status(path_, ignored);
  if (fs::is_directory(status)) refuse("it is a folder; give the name of a file");
  if (path_.filename().empty()) refuse("expected the name of a file");
  if (!fs::is_directory(folder_of(path_), ignored)) {
    refuse("there is no folder '" + folder_of(path_).string() + "'; create it first");
  }

  if (fs::exists(status) && !fs::is_regular_file(status)) {
    file_ = FileDescriptor(open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_) fail("it could not be opened");
    return;
  }
  remove_leftovers_of(path_);
  open_temporary();
  struct stat old {};
  constexpr mode_t kPermissions = 0777;
  if (stat(path_.c_str(), &old) == 0) {
    // Not a reason to fail where the file system has no permissions: the data is what matters.
    [[maybe_unused]] const int result = fchmod(file_.get(), old.st_mode & kPermissions);
  }
}

AtomicFile::~AtomicFile() {
  file_.close();
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::open_temporary() {
  static std::atomic<int> next = 0;
  // A name can be taken: in a container, killed processes before this one had the same number.
  while (temporary_.empty()) {
    const fs::path candidate = temporary_of(path_, next++);
    file_ = FileDescriptor(open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file_ && errno != EEXIST && errno != EINTR) {
      fail("no file could be created in '" + folder_of(path_).string() + "'");
    }
    if (file_ && lock(file_)) temporary_ = candidate;
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  check_open();
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("writing failed");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFile::commit() {
  check_open();
  // Pipes and most devices have nothing to sync, which they report as EINVAL.
  if (fsync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("writing failed");
  if (temporary_.empty()) {
    if (file_.close() != 0) fail("writing failed");
    return;
  }
  // Closing it would unlock it: others would take it for a leftover.
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("the written file could not be renamed");
  temporary_.clear();
  file_.close();  // synced already
  sync_folder();
}

// Without it the rename itself could be lost with the power.
void AtomicFile::sync_folder() {
  const FileDescriptor folder(open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // A folder that may be written to but not be listed; or a file system that cannot sync folders.
  if (!folder) return;
  if (fsync(folder.get()) != 0 && errno != EINVAL) {
    throw std::system_error(
        errno, std::generic_category(),
        "'" + path_.string() + "' was written, but its folder could not be synced to the disk");
  }
}

void AtomicFile::check_open() const {
  if (!file_) {
    throw std::logic_error(
        "the file '" + path_.string() +
        "' is already committed, or writing it has failed: nothing can be added");
  }
}

void AtomicFile::fail(std::string_view doing) {
  const int error = errno;
  file_.close();
  throw std::system_error(error, std::generic_category(),
                          "cannot write '" + path_.string() + "': " + std::string(doing));
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace pareprop::io
