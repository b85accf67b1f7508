#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pareprop/data/images/image_source.h"

// The formats that decode_image() knows.
namespace pareprop::data {

bool is_jpeg(std::span<const std::byte> bytes);
bool is_png(std::span<const std::byte> bytes);

// As decode_image().
Image decode_jpeg(std::span<const std::byte> bytes, const SmallestSize& smallest,
                  std::int64_t max_pixels);
Image decode_png(std::span<const std::byte> bytes, std::int64_t max_pixels);

// Throws std::runtime_error when an image that is about to be decoded has no or too many pixels.
void check_decoded_size(int height, int width, std::int64_t max_pixels);

}  // namespace pareprop::data
