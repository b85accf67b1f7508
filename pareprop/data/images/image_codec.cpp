#include "pareprop/data/images/image_codec.h"

#include <stdexcept>

#include "pareprop/data/images/jpeg.h"
#include "pareprop/data/images/png.h"

namespace pareprop::data {

Image decode_image(std::span<const std::byte> bytes, const SmallestSize& smallest,
                   std::int64_t max_pixels) {
  if (is_jpeg(bytes)) return decode_jpeg(bytes, smallest, max_pixels);
  if (is_png(bytes)) return decode_png(bytes, max_pixels);
  throw std::runtime_error(bytes.empty() ? "the file is empty; expected a JPEG or PNG image"
                                         : "the file is neither a JPEG nor a PNG image");
}

}  // namespace pareprop::data
