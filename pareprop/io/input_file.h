#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::io {

// A regular file, open for reading. Folders, pipes, sockets and devices are refused, and opening
// one does not wait. The file is read and never mapped: one that becomes shorter meanwhile is an
// error and no signal (SIGBUS). One that is replaced (as AtomicFile does) or removed is read on as
// it was. Safe to use from several threads.
//
// Errors are std::runtime_error, of which std::system_error is one; the message names the file and
// says what is wrong with it.
class InputFile {
 public:
  // `within`: a folder that the file, behind all links, must be in; empty: it may be anywhere. The
  // folder itself may be a link.
  explicit InputFile(std::filesystem::path path, const std::filesystem::path& within = {});

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }  // when it was opened

  // Fills `out` with the bytes from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  FileDescriptor file_;
  std::uint64_t size_ = 0;
};

struct ReadFileOptions {
  std::uint64_t most_bytes = std::uint64_t{16} << 20;  // a larger file is refused unread
  std::filesystem::path within = {};                   // as InputFile takes it
};

// For ReadFileOptions::most_bytes: a file of any size.
inline constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();

// A whole file at once; errors as above. Text is not checked to be UTF-8.
std::string read_text_file(const std::filesystem::path& path, const ReadFileOptions& options = {});
std::vector<std::byte> read_binary_file(const std::filesystem::path& path,
                                        const ReadFileOptions& options = {});

}  // namespace pareprop::io
