#pragma once

#include <cstdint>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

struct SyntheticOptions {
  int height = 224, width = 224, channels = 3;  // of every image
  int classes = 1000;                           // labels are drawn too
  std::int64_t train = 51200, test = 2048;      // images
  std::uint64_t seed = 0;                       // other numbers, other images
};

// Noise, made when it is loaded: for measuring, when no data set is at hand. Throws
// std::invalid_argument for sizes, classes or numbers below 1.
ImageHalves synthetic_images(const SyntheticOptions& options = {});

}  // namespace pareprop::data
