#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pareprop/data/images/image.h"

// Image files for tests, as their formats have them.
namespace pareprop::data::testing {

inline std::span<const std::byte> bytes_of(const std::string& file) {
  return std::as_bytes(std::span(file));
}

// An idx file of unsigned bytes.
std::string idx_bytes(const std::vector<std::uint32_t>& sizes, const std::string& values);

std::string gzip_bytes(const std::string& content);

// By turbojpeg and libspng.
std::string jpeg_bytes(const Image& image, int quality = 95);
std::string png_bytes(const Image& image);

// Smooth, so that JPEG keeps it nearly, and different in every direction and colour.
Image slope(int height, int width, int channels);

// Noise: no two pixels are alike by design.
Image noise(int height, int width, int channels, std::uint64_t seed);

}  // namespace pareprop::data::testing
