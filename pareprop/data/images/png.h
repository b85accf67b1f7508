#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pareprop/data/images/image.h"

namespace pareprop::data {

bool is_png(std::span<const std::byte> bytes);

// As decode_image(), for PNG.
Image decode_png(std::span<const std::byte> bytes, std::int64_t max_pixels);

}  // namespace pareprop::data
