#include "pareprop/data/list_files.h"

#include <algorithm>
#include <system_error>

namespace pareprop::data {

namespace fs = std::filesystem;

FileList list_files(const fs::path& folder, const std::function<bool(const fs::path&)>& is_wanted) {
  FileList found;
  std::vector<fs::path> folders = {folder};
  while (!folders.empty()) {
    const fs::path here = std::move(folders.back());
    folders.pop_back();
    std::error_code error;
    fs::directory_iterator entry(here, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      const fs::path& path = entry->path();
      std::error_code ignored;
      if (entry->symlink_status(ignored).type() == fs::file_type::directory) {
        folders.push_back(path);
      } else if (is_wanted(path) && !entry->is_directory(ignored)) {
        found.files.push_back(path);
      }
    }
    if (error) found.left_out.push_back("cannot read '" + here.string() + "': " + error.message());
  }
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.left_out.begin(), found.left_out.end());
  return found;
}

}  // namespace pareprop::data
