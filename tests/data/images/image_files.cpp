#include "tests/data/images/image_files.h"

#include <spng.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "pareprop/data/counter_random.h"

namespace pareprop::data::testing {

std::string idx_bytes(const std::vector<std::uint32_t>& sizes, const std::string& values) {
  std::string bytes{0, 0, 8, static_cast<char>(sizes.size())};
  for (const std::uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift);
  }
  return bytes + values;
}

std::string gzip_bytes(const std::string& content) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string packed(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("deflate");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

std::string jpeg_bytes(const Image& image, int quality) {
  const tjhandle encoder = tjInitCompress();
  unsigned char* data = nullptr;
  unsigned long size = 0;
  const int format = image.channels == 1 ? TJPF_GRAY : image.channels == 4 ? TJPF_CMYK : TJPF_RGB;
  const int failed =
      tjCompress2(encoder, image.pixels.data(), image.width, 0, image.height, format, &data, &size,
                  image.channels == 1 ? TJSAMP_GRAY : TJSAMP_444, quality, 0);
  const std::string bytes(reinterpret_cast<char*>(data), size);
  tjFree(data);
  tjDestroy(encoder);
  if (failed != 0) throw std::runtime_error("tjCompress2");
  return bytes;
}

std::string png_bytes(const Image& image) {
  constexpr spng_color_type kColours[] = {
      SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, SPNG_COLOR_TYPE_TRUECOLOR,
      SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> encoder(spng_ctx_new(SPNG_CTX_ENCODER),
                                                               spng_ctx_free);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(image.width);
  header.height = static_cast<std::uint32_t>(image.height);
  header.bit_depth = 8;
  header.color_type = static_cast<std::uint8_t>(kColours[image.channels - 1]);
  spng_set_option(encoder.get(), SPNG_ENCODE_TO_BUFFER, 1);
  spng_set_ihdr(encoder.get(), &header);
  int failed = spng_encode_image(encoder.get(), image.pixels.data(), image.pixels.size(),
                                 SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  if (failed != 0) throw std::runtime_error(spng_strerror(failed));
  std::size_t size = 0;
  const std::unique_ptr<void, void (*)(void*)> data(
      spng_get_png_buffer(encoder.get(), &size, &failed), std::free);
  if (data == nullptr) throw std::runtime_error(spng_strerror(failed));
  return {static_cast<const char*>(data.get()), size};
}

Image slope(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int level = c == 0   ? 250 * y / height
                          : c == 1 ? 250 * x / width
                                   : 250 - 250 * x / width;
        image.pixels.push_back(static_cast<std::uint8_t>(level));
      }
    }
  }
  return image;
}

Image noise(int height, int width, int channels, std::uint64_t seed) {
  Image image{height, width, channels, {}};
  CounterRandom random{seed};
  for (int i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<std::uint8_t>(random.below(256)));
  }
  return image;
}

}  // namespace pareprop::data::testing
