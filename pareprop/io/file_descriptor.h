#pragma once

#include <unistd.h>

#include <utility>

namespace pareprop::io {

// Owns what open() returned; closes it. Converts to false when open() failed.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) : number_(number) {}
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  explicit operator bool() const { return number_ >= 0; }
  int get() const { return number_; }

  // What ::close() returned; 0 when there was nothing to close. It is closed even after an error.
  int close() { return number_ >= 0 ? ::close(std::exchange(number_, -1)) : 0; }

 private:
  int number_;
};

}  // namespace pareprop::io
