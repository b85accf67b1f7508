#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pareprop/data/images/image_source.h"

namespace pareprop::data {

// A small file can claim to be an image that fills all memory: more pixels than this are refused.
inline constexpr std::int64_t kMaxImagePixels = 100'000'000;

// Of the file: so many pixels, four numbers of 16 bits each, not compressed.
inline constexpr std::uint64_t kMaxImageBytes = 8 * kMaxImagePixels;

// A JPEG or PNG file as grey (1 channel) or RGB (3); opacity is left out, CMYK becomes RGB. A JPEG
// that is larger than `smallest` asks for is decoded at 1/8 to 7/8 of its size, the smallest that
// is not below it. Throws std::runtime_error when the bytes are neither format, damaged or cut off,
// or have more than `max_pixels`.
Image decode_image(std::span<const std::byte> bytes, const SmallestSize& smallest = {},
                   std::int64_t max_pixels = kMaxImagePixels);

}  // namespace pareprop::data
