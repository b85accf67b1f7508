#pragma once

#include <cstdint>
#include <vector>

namespace pareprop::data {

struct ImageSize {
  int height = 0, width = 0;
  bool operator==(const ImageSize&) const = default;
};

struct Image {
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;  // row by row, the channels of a pixel together

  ImageSize size() const { return {height, width}; }
  bool operator==(const Image&) const = default;
};

}  // namespace pareprop::data
