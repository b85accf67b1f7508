#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace pareprop::io {

// A whole file in memory, read from disk where it is touched. Writing to the memory is allowed and
// changes neither the file nor what others see of it.
//
// The system ends the process (SIGBUS) when it touches a part that is no longer there: a file in
// use may be removed or replaced by another (as AtomicFile does), but not shortened in place.
class MappedFile {
 public:
  // Throws std::system_error when the file cannot be opened or mapped, std::runtime_error when it
  // is a folder, a pipe or a device.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace pareprop::io
