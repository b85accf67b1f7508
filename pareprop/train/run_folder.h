#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/io/file_descriptor.h"

namespace pareprop::train {

// Where a run's folder has what.
std::filesystem::path config_file(const std::filesystem::path& run);
std::filesystem::path classes_file(const std::filesystem::path& run);
std::filesystem::path tokenizer_folder(const std::filesystem::path& run);
std::filesystem::path weights_file(const std::filesystem::path& run);
std::filesystem::path best_weights_file(const std::filesystem::path& run);
std::filesystem::path checkpoint_folder(const std::filesystem::path& run);

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

// What is written is replaced, so it must be the run's own: these throw std::invalid_argument, with
// what to do, for a path where something else is than a regular file, or a folder of such files.
// Links are something else. What is not there passes.
void check_file_of_run(const std::filesystem::path& path);
void check_folder_of_run(const std::filesystem::path& path);
// All that training writes in `folder`, besides checkpoints.
void check_parts_of_run(const std::filesystem::path& folder);

// What `folder` has of a run: paths that training would write to. Empty: a new run can use it.
std::vector<std::filesystem::path> files_of_run(const std::filesystem::path& folder);

// Gives what an earlier attempt left in `folder` other names ("metrics-1.jsonl"), all with the same
// number, so that a new attempt overwrites nothing. Returns the new names.
std::vector<std::string> set_aside(const std::filesystem::path& folder);

// What processes that were killed left of files they were writing; nothing that is the user's.
void remove_leftovers_of_run(const std::filesystem::path& folder);

}  // namespace pareprop::train
