#include "pareprop/io/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace pareprop::io {
namespace {

namespace fs = std::filesystem;

std::string cannot_read(const fs::path& path) { return "cannot read '" + path.string() + "'"; }

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw std::runtime_error(cannot_read(path) + ": " + why);
}

[[noreturn]] void fail_with_errno(const fs::path& path) {
  throw std::system_error(errno, std::generic_category(), cannot_read(path));
}

void check_regular(const fs::path& path, const struct stat& status) {
  const mode_t kind = status.st_mode & S_IFMT;
  if (kind == S_IFREG) return;
  if (kind == S_IFDIR) fail(path, "it is a folder; give the name of a file");
  fail(path, std::string("it is a ") +
                 (kind == S_IFIFO ? "pipe" : (kind == S_IFSOCK ? "socket" : "device")) +
                 "; expected a regular file");
}

// Where the file is behind all links.
fs::path checked_within(const fs::path& path, const fs::path& within) {
  std::error_code error;
  const fs::path folder = fs::canonical(within, error);
  if (error) throw std::system_error(error, cannot_read(path));
  fs::path file = fs::canonical(path, error);
  if (error) throw std::system_error(error, cannot_read(path));
  if (std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first != folder.end()) {
    fail(path, "it is a link to '" + file.string() + "', which is outside of '" + within.string() +
                   "'; expected a file in that folder");
  }
  return file;
}

template <class Content>
Content read_whole(const fs::path& path, const ReadFileOptions& options) {
  const InputFile file(path, options.within);
  if (file.size() > options.most_bytes) {
    fail(path, "it has " + std::to_string(file.size()) + " bytes; expected at most " +
                   std::to_string(options.most_bytes));
  }
  Content content(static_cast<std::size_t>(file.size()), {});
  file.read(0, std::as_writable_bytes(std::span(content)));
  return content;
}

}  // namespace

InputFile::InputFile(fs::path path, const fs::path& within) : path_(std::move(path)) {
  const fs::path meant = within.empty() ? path_ : checked_within(path_, within);
  struct stat status {};
  // Looked at before it is opened: opening a device can do something, and a socket cannot be.
  if (stat(meant.c_str(), &status) != 0) fail_with_errno(path_);
  check_regular(path_, status);
  // It may be another one by now. Opening a pipe would wait for a writer.
  file_ = FileDescriptor(open(meant.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file_ || fstat(file_.get(), &status) != 0) fail_with_errno(path_);
  check_regular(path_, status);
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(file_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with_errno(path_);
    if (got == 0) {
      fail(path_, "it became shorter while it was read: it had " + std::to_string(size_) +
                      " bytes and now ends at byte " + std::to_string(offset) +
                      ". Is another program writing to it?");
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::string read_text_file(const fs::path& path, const ReadFileOptions& options) {
  return read_whole<std::string>(path, options);
}

std::vector<std::byte> read_binary_file(const fs::path& path, const ReadFileOptions& options) {
  return read_whole<std::vector<std::byte>>(path, options);
}

}  // namespace pareprop::io
