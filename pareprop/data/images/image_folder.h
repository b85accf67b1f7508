#pragma once

#include <filesystem>
#include <vector>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// JPEG and PNG files (by the end of their names), in one sub-folder for each class, at any depth
// inside it; classes are sorted by name. Where the folder has sub-folders train and val, those
// have the classes; otherwise `held_out`, a share in (0, 1), is kept for testing: which files is
// decided by a hash of each one's name in the folder, so that other files do not change it. Files
// are read when they are loaded. Folders inside that cannot be read are left out
// (ImageSource::left_out). Throws std::invalid_argument when there are no images, when val
// has a class that train lacks, and when no image is left for one of the halves.
ImageHalves open_image_folder(const std::filesystem::path& folder, double held_out = 0.1);

// JPEG and PNG files at any depth in a folder, sorted. Hidden ones, and folders that cannot be
// read, are left out.
std::vector<std::filesystem::path> image_files(const std::filesystem::path& folder);

}  // namespace pareprop::data
