#include "pareprop/data/images/png.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "pareprop/data/images/decoded_size.h"

namespace {

// A few bytes of a PNG can unpack to gigabytes, whatever size its header says. stb_image asks these
// for memory, so that it gets no more than an image of the header's size can need.
thread_local std::size_t allocation_limit = 0;

void* limited_realloc(void* memory, std::size_t size) {
  return size > allocation_limit ? nullptr : std::realloc(memory, size);
}

}  // namespace

#define STBI_MALLOC(size) limited_realloc(nullptr, size)
#define STBI_REALLOC(memory, size) limited_realloc(memory, size)
#define STBI_FREE(memory) std::free(memory)
#define STBI_ONLY_PNG
#define STBI_NO_STDIO
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

namespace pareprop::data {
namespace {

constexpr std::array kSignature{std::byte{0x89}, std::byte{'P'},  std::byte{'N'},  std::byte{'G'},
                                std::byte{'\r'}, std::byte{'\n'}, std::byte{0x1a}, std::byte{'\n'}};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("the PNG image is damaged: " + what);
}

std::size_t big_endian(std::span<const std::byte> bytes) {
  std::size_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::size_t>(byte);
  return value;
}

// stb_image does not look at the check sums.
void check_chunks(std::span<const std::byte> rest) {
  constexpr std::size_t kAround = 12;  // length, type, check sum
  for (bool last = false; !last;) {
    if (rest.size() < kAround) fail("it is cut off");
    const std::size_t length = big_endian(rest.first(4));
    if (length > rest.size() - kAround) fail("it is cut off");
    const auto checked = rest.subspan(4, 4 + length);
    const auto* data = reinterpret_cast<const Bytef*>(checked.data());
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    if (crc32_z(0, data, checked.size()) != big_endian(rest.subspan(8 + length, 4))) {
      fail("the check sum of a chunk is wrong");
    }
#endif
    last = std::equal(data, data + 4, "IEND");
    rest = rest.subspan(kAround + length);
  }
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kSignature.size() &&
         std::equal(kSignature.begin(), kSignature.end(), bytes.begin());
}

Image decode_png(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max() / 4)) {
    throw std::runtime_error("the PNG file has " + std::to_string(bytes.size()) +
                             " bytes; expected less than half a gigabyte");
  }
  check_chunks(bytes.subspan(kSignature.size()));
  const auto* data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0, height = 0, channels = 0;
  allocation_limit = 2 * bytes.size() + 4096;  // it gathers the packed data, doubling
  if (stbi_info_from_memory(data, size, &width, &height, &channels) == 0) {
    fail(stbi_failure_reason());
  }
  check_decoded_size(height, width, max_pixels);

  // Four channels of two bytes, a byte more a row, seven passes when interlaced; doubling.
  const std::size_t unpacked =
      8 * (static_cast<std::size_t>(width) + 8) * (static_cast<std::size_t>(height) + 8);
  allocation_limit = std::max(allocation_limit, 2 * unpacked);
  const int wanted = channels <= 2 ? 1 : 3;
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, size, &width, &height, &channels, wanted), stbi_image_free);
  if (pixels == nullptr) fail(stbi_failure_reason());
  const std::size_t count = static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                            static_cast<std::size_t>(wanted);
  return {height, width, wanted, {pixels.get(), pixels.get() + count}};
}

}  // namespace pareprop::data
