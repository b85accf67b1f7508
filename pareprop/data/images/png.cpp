#include <spng.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/data/images/image_formats.h"

namespace pareprop::data {
namespace {

constexpr std::array kSignature{std::byte{0x89}, std::byte{'P'},  std::byte{'N'},  std::byte{'G'},
                                std::byte{'\r'}, std::byte{'\n'}, std::byte{0x1a}, std::byte{'\n'}};

// No fuzzer finds check sums.
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
constexpr spng_crc_action kWrongCheckSum = SPNG_CRC_USE;
#else
constexpr spng_crc_action kWrongCheckSum = SPNG_CRC_ERROR;
#endif

struct Free {
  void operator()(spng_ctx* decoder) const { spng_ctx_free(decoder); }
};
using Decoder = std::unique_ptr<spng_ctx, Free>;

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("the PNG image is damaged: " + what);
}

void check(int status) {
  if (status == SPNG_OK) return;
  if (status == SPNG_EMEM) throw std::bad_alloc();
  if (status == SPNG_ECHUNK_CRC) fail("the checksum of a chunk is wrong");
  fail(spng_strerror(status));
}

std::size_t big_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::size_t>(byte);
  return value;
}

struct Chunks {
  std::vector<std::byte> critical;  // a PNG of these alone
  std::size_t packed = 0;           // bytes of them that hold the pixels
};

// The other chunks (texts, colour profiles) do not change the pixels, but libspng would unpack
// them, and a few bytes can unpack to gigabytes. So only their check sums are looked at.
Chunks critical_chunks(std::span<const std::byte> file) {
  constexpr std::size_t kAround = 12;  // length, type, check sum
  Chunks chunks{{kSignature.begin(), kSignature.end()}};
  chunks.critical.reserve(file.size());
  std::span<const std::byte> rest = file.subspan(kSignature.size());
  for (bool last = false; !last;) {
    if (rest.size() < kAround) fail("it is cut off");
    const std::size_t length = big_endian(rest.first(4));
    if (length > rest.size() - kAround) fail("it is cut off");
    const auto chunk = rest.first(kAround + length);
    const std::string_view type(reinterpret_cast<const char*>(chunk.data() + 4), 4);
    const bool critical = (type[0] & 0x20) == 0;  // a capital letter
    if (critical) {
      chunks.critical.insert(chunks.critical.end(), chunk.begin(), chunk.end());
      if (type == "IDAT") chunks.packed += length;
    } else if (kWrongCheckSum == SPNG_CRC_ERROR) {
      const auto* checked = reinterpret_cast<const Bytef*>(type.data());
      if (crc32_z(0, checked, 4 + length) != big_endian(chunk.last(4))) check(SPNG_ECHUNK_CRC);
    }
    last = type == "IEND";
    rest = rest.subspan(chunk.size());
  }
  return chunks;
}

// `rows` is the number of bytes that all rows have when unpacked. libspng unpacks no more, but does
// not say when data is left.
void check_packed_size(std::size_t packed, std::size_t rows, std::size_t height) {
  constexpr std::size_t kMaxInAByte = 1032;  // that deflate can pack
  if (rows / kMaxInAByte > packed) fail("it has too little data for its size");
  // Noise packed badly grows by an eighth; an encoder may end a block after each row.
  if (packed > 2 * (rows + 16 * height) + 4096) fail("it has too much data for its size");
}

// From pixels as the file has them: opacity comes after the colours, the low byte of a number after
// its high byte. Both are left out.
void narrow(Image& image, std::size_t bytes_of_number) {
  const auto channels = static_cast<std::size_t>(image.channels);
  const std::size_t pixels =
      static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  const std::size_t bytes_of_pixel = image.pixels.size() / pixels;
  std::uint8_t* const at = image.pixels.data();
  for (std::size_t i = 0; i < pixels; ++i) {
    for (std::size_t c = 0; c < channels; ++c) {
      at[i * channels + c] = at[i * bytes_of_pixel + c * bytes_of_number];
    }
  }
  image.pixels.resize(pixels * channels);
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

Image decode_png(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  const Chunks chunks = critical_chunks(bytes);
  // The pixels have two check sums; that of the chunks is enough.
  const Decoder owner(spng_ctx_new(SPNG_CTX_IGNORE_ADLER32));
  spng_ctx* const decoder = owner.get();
  if (decoder == nullptr) throw std::bad_alloc();
  check(spng_set_crc_action(decoder, kWrongCheckSum, kWrongCheckSum));
  check(spng_set_png_buffer(decoder, chunks.critical.data(), chunks.critical.size()));
  check(spng_decode_chunks(decoder));  // those before the pixels

  spng_ihdr header{};
  check(spng_get_ihdr(decoder, &header));
  Image image{static_cast<int>(header.height), static_cast<int>(header.width), 3, {}};
  check_decoded_size(image.height, image.width, max_pixels);
  std::size_t rows = 0;
  check(spng_decoded_image_size(decoder, SPNG_FMT_RAW, &rows));
  check_packed_size(chunks.packed, rows, header.height);

  const bool grey = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE ||
                    header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA;
  const bool opacity = header.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                       header.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
  if (grey) image.channels = 1;
  // libspng converts these slowly, and to 8 bits of grey not at all.
  const bool wide = opacity || header.bit_depth > 8;
  const int format = wide ? SPNG_FMT_RAW : grey ? SPNG_FMT_G8 : SPNG_FMT_RGB8;
  std::size_t size = 0;
  check(spng_decoded_image_size(decoder, format, &size));
  image.pixels.resize(size);
  check(spng_decode_image(decoder, image.pixels.data(), size, format, 0));
  check(spng_decode_chunks(decoder));  // those after the pixels
  if (wide) narrow(image, header.bit_depth / 8u);
  return image;
}

}  // namespace pareprop::data
