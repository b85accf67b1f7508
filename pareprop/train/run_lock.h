#pragma once

#include <filesystem>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::train {

// Keeps other processes from training in the same folder as long as it lives, also when they are
// what a killed launcher left behind. Gone with the process, however that ends.
class RunLock {
 public:
  // Makes the folder. Throws std::invalid_argument when another process holds it,
  // std::system_error when the folder cannot be written.
  explicit RunLock(const std::filesystem::path& folder);

 private:
  io::FileDescriptor file_;
};

}  // namespace pareprop::train
