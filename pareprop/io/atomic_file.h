#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::io {

// Writes a file whole or not at all. What is written goes to a temporary file beside it,
// "NAME.partial-PID-N", which takes the name in commit(): until then, and after any error, whoever
// opens the file gets the old one, and after commit() the new one even if the power fails. Without
// commit() the destructor removes the temporary. Only a process that is killed leaves one behind,
// which the next one that writes the file removes (see leftovers.h).
//
// A link is followed, and the permissions of a file that is replaced are kept. Devices and pipes
// are written to directly.
//
// Errors are std::system_error, whose message names the file and says what the system said ("No
// space left on device"), or std::runtime_error for a path that cannot be a file. After one, the
// object can only be destroyed.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends, without a buffer of its own.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Once, after the last write.
  void commit();

 private:
  void open_temporary();
  void sync_folder();
  void check_open() const;
  [[noreturn]] void fail(std::string_view doing);

  std::filesystem::path path_;       // behind links
  std::filesystem::path temporary_;  // empty when there is none: a device, or after the rename
  FileDescriptor file_;
};

// A whole file at once; errors as above.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace pareprop::io
