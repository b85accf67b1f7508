#pragma once

#include <vector>

#include "pareprop/data/images/image.h"

namespace pareprop::data {

enum class Filter { bilinear, bicubic };

// A part of an image, in pixels of it, also fractions of them.
struct Box {
  double top = 0, left = 0, height = 0, width = 0;
};

// As Image, the levels (0 .. 255) as they were computed.
struct FloatImage {
  int height = 0, width = 0, channels = 0;
  std::vector<float> pixels;
};

// The part `box` of an image in another size. Antialiased: where it is made smaller the filter is
// made as much wider, as Pillow does. Bicubic may go below 0 and above 255 at edges. Throws
// std::invalid_argument when the box is empty or not inside the image, or a size is below 1.
FloatImage resize(const Image& image, const Box& box, ImageSize size, Filter filter);
FloatImage resize(const FloatImage& image, const Box& box, ImageSize size, Filter filter);

}  // namespace pareprop::data
