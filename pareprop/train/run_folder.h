#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::train {

// The folder of a run, of which one process at a time is the owner. Nothing is created or changed
// until own() is called, so a run that fails before its first step leaves no folder behind.
class RunFolder {
 public:
  // Throws std::invalid_argument when another process owns the folder, std::system_error when it
  // could not be made.
  explicit RunFolder(std::filesystem::path path);

  // Makes the folder and owns it until this object is gone. Throws as the constructor does.
  void own();

  // Throws std::runtime_error when the folder that is owned was removed or replaced.
  void check_there() const;

 private:
  void lock();

  std::filesystem::path path_;
  io::FileDescriptor lock_;
  io::FileDescriptor folder_;  // once it is owned
};

// What `folder` has of a run: paths that training would write to. Empty: a new run can use it.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& folder);

// Gives what an earlier attempt left in `folder` other names ("metrics-1.jsonl"), so that a new
// attempt overwrites nothing. Returns the new names.
std::vector<std::string> set_aside(const std::filesystem::path& folder);

}  // namespace pareprop::train
