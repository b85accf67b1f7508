#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace pareprop::data {

struct FileList {
  std::vector<std::filesystem::path> files;  // sorted
  // One line each, for messages: folders that could not be looked into.
  std::vector<std::string> left_out;
};

// All files at any depth inside the folder whose path `is_wanted`. Links to folders are not
// followed; all other links are files, also those that lead nowhere or to themselves: who reads
// them finds out. A folder that cannot be read is left out.
FileList list_files(const std::filesystem::path& folder,
                    const std::function<bool(const std::filesystem::path&)>& is_wanted);

}  // namespace pareprop::data
