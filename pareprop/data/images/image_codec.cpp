#include "pareprop/data/images/image_codec.h"

#include <stdexcept>
#include <string>

#include "pareprop/data/images/image_formats.h"

namespace pareprop::data {

void check_decoded_size(int height, int width, std::int64_t max_pixels) {
  if (height > 0 && width > 0 && std::int64_t{height} * width <= max_pixels) return;
  throw std::runtime_error("the image is " + std::to_string(width) + " x " +
                           std::to_string(height) + " pixels; expected 1 to " +
                           std::to_string(max_pixels) + " pixels");
}

Image decode_image(std::span<const std::byte> bytes, const SmallestSize& smallest,
                   std::int64_t max_pixels) {
  if (is_jpeg(bytes)) return decode_jpeg(bytes, smallest, max_pixels);
  if (is_png(bytes)) return decode_png(bytes, max_pixels);
  throw std::runtime_error(bytes.empty() ? "the file is empty; expected a JPEG or PNG image"
                                         : "the file is neither a JPEG nor a PNG image");
}

}  // namespace pareprop::data
