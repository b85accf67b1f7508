#include "pareprop/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::io {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::string what = "cannot read '" + path.string() + "'";
  // Opening a pipe would wait for a writer.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) {
    throw std::system_error(errno, std::generic_category(), what);
  }
  if (!S_ISREG(status.st_mode)) {
    throw std::runtime_error(
        what + ": it is " +
        (S_ISDIR(status.st_mode) ? "a folder; give the name of a file" : "not a regular file"));
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // a mapping cannot be empty
  // Without NORESERVE the system would count the whole file as memory that may be needed, and
  // refuse one larger than the memory that is free.
  void* const data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file.get(), 0);
  if (data == MAP_FAILED) throw std::system_error(errno, std::generic_category(), what);
  bytes_ = {static_cast<std::byte*>(data), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace pareprop::io
