#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pareprop::data {

// Throws std::runtime_error when an image that is about to be decoded has no or too many pixels.
inline void check_decoded_size(int height, int width, std::int64_t max_pixels) {
  if (height > 0 && width > 0 && std::int64_t{height} * width <= max_pixels) return;
  throw std::runtime_error("the image is " + std::to_string(width) + " x " +
                           std::to_string(height) + " pixels; expected 1 to " +
                           std::to_string(max_pixels) + " pixels");
}

}  // namespace pareprop::data
