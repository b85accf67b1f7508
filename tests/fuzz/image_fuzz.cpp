// libFuzzer: any bytes as a JPEG or PNG file. They are refused with std::runtime_error, or become
// an image of 1 or 3 channels with all its pixels, not smaller than asked for.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>

#include "pareprop/data/images/image_codec.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using pareprop::data::ImageSize;
  constexpr std::int64_t kMaxPixels = 1 << 16;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  ImageSize wanted;
  try {
    const auto image = pareprop::data::decode_image(
        bytes,
        [&](ImageSize full) {
          return wanted = {(full.height + 2) / 3, (full.width + 2) / 3};
        },
        kMaxPixels);
    require(image.height >= std::max(1, wanted.height));
    require(image.width >= std::max(1, wanted.width));
    require(std::int64_t{image.height} * image.width <= kMaxPixels);
    require(image.channels == 1 || image.channels == 3);
    require(image.pixels.size() == static_cast<std::size_t>(image.height) *
                                       static_cast<std::size_t>(image.width) *
                                       static_cast<std::size_t>(image.channels));
  } catch (const std::runtime_error&) {
  }
  return 0;
}
