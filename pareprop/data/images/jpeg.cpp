#include <turbojpeg.h>

#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pareprop/data/images/image_formats.h"

namespace pareprop::data {
namespace {

struct Destroy {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using Decoder = std::unique_ptr<void, Destroy>;

[[noreturn]] void fail(const Decoder& decoder) {
  throw std::runtime_error(std::string("the JPEG image is damaged: ") +
                           tjGetErrorStr2(decoder.get()));
}

// What to multiply the full size with, at most 1.
tjscalingfactor smallest_factor(ImageSize full, ImageSize wanted) {
  tjscalingfactor best{1, 1};
  int count = 0;
  const tjscalingfactor* const factors = tjGetScalingFactors(&count);
  for (int i = 0; factors != nullptr && i < count; ++i) {
    const tjscalingfactor factor = factors[i];
    const bool smaller = factor.num * best.denom < best.num * factor.denom;
    if (smaller && TJSCALED(full.height, factor) >= wanted.height &&
        TJSCALED(full.width, factor) >= wanted.width) {
      best = factor;
    }
  }
  return best;
}

// Files in CMYK come from Adobe's programs, which write 255 for no ink.
Image rgb_of_inverted_cmyk(const Image& cmyk) {
  Image rgb{cmyk.height, cmyk.width, 3, {}};
  rgb.pixels.reserve(cmyk.pixels.size() / 4 * 3);
  for (std::size_t i = 0; i < cmyk.pixels.size(); i += 4) {
    const int black = cmyk.pixels[i + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      rgb.pixels.push_back(static_cast<std::uint8_t>((cmyk.pixels[i + c] * black + 127) / 255));
    }
  }
  return rgb;
}

}  // namespace

bool is_jpeg(std::span<const std::byte> bytes) {
  return bytes.size() >= 3 && bytes[0] == std::byte{0xff} && bytes[1] == std::byte{0xd8} &&
         bytes[2] == std::byte{0xff};
}

Image decode_jpeg(std::span<const std::byte> bytes, const SmallestSize& smallest,
                  std::int64_t max_pixels) {
  const Decoder decoder(tjInitDecompress());
  if (decoder == nullptr) throw std::bad_alloc();
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  ImageSize full;
  int sampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), data, bytes.size(), &full.width, &full.height, &sampling,
                          &colours) != 0) {
    fail(decoder);
  }
  if (full == ImageSize{}) throw std::runtime_error("the JPEG image is damaged: it is cut off");
  check_decoded_size(full.height, full.width, max_pixels);

  const auto factor = smallest_factor(full, smallest ? smallest(full) : full);
  const bool cmyk = colours == TJCS_CMYK || colours == TJCS_YCCK;
  const int format = cmyk ? TJPF_CMYK : colours == TJCS_GRAY ? TJPF_GRAY : TJPF_RGB;
  Image image{TJSCALED(full.height, factor), TJSCALED(full.width, factor), tjPixelSize[format], {}};
  image.pixels.resize(static_cast<std::size_t>(image.height) *
                      static_cast<std::size_t>(image.width) *
                      static_cast<std::size_t>(image.channels));
  // A file of a few kB can ask for thousands of passes over the whole image.
  if (tjDecompress2(decoder.get(), data, bytes.size(), image.pixels.data(), image.width, 0,
                    image.height, format, TJFLAG_LIMITSCANS) != 0) {
    // Warnings are for oddities that leave the pixels alone, but for these two.
    const std::string_view message = tjGetErrorStr2(decoder.get());
    const bool odd = tjGetErrorCode(decoder.get()) == TJERR_WARNING &&
                     message.find("Premature end") == std::string_view::npos &&
                     message.find("Corrupt JPEG data: bad") == std::string_view::npos;
    if (!odd) fail(decoder);
  }
  return cmyk ? rgb_of_inverted_cmyk(image) : image;
}

}  // namespace pareprop::data
