#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

bool is_jpeg(std::span<const std::byte> bytes);

// As decode_image(), for JPEG.
Image decode_jpeg(std::span<const std::byte> bytes, const SmallestSize& smallest,
                  std::int64_t max_pixels);

}  // namespace pareprop::data
