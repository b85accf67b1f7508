#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// The four files of the MNIST family in a folder, plain or gzip: images and labels of "train" and
// of "t10k" or "test" (train-images-idx3-ubyte.gz, ...). Without names, classes are called by their
// number, as many as the training labels need. Throws std::invalid_argument when a file is missing
// or ambiguous, or files disagree; std::runtime_error, which names the file, when one is damaged.
ImageHalves open_idx_images(const std::filesystem::path& folder,
                            std::vector<std::string> class_names = {});

}  // namespace pareprop::data
