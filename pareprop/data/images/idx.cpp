#include "pareprop/data/images/idx.h"

#include <sstream>
#include <stdexcept>
#include <string>

namespace pareprop::data {
namespace {

constexpr std::size_t kMagicBytes = 4;
constexpr std::size_t kSizeBytes = 4;
constexpr auto kUnsignedByte = std::byte{0x08};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("it is not an idx file of unsigned bytes: " + what);
}

std::int64_t big_endian(std::span<const std::byte> bytes) {
  std::int64_t value = 0;
  for (const std::byte byte : bytes) value = value << 8 | std::to_integer<std::int64_t>(byte);
  return value;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes) {
  if (bytes.size() < kMagicBytes || bytes[0] != std::byte{0} || bytes[1] != std::byte{0}) {
    fail("expected it to begin with two zero bytes, the type and the number of dimensions");
  }
  if (bytes[2] != kUnsignedByte) {
    std::ostringstream type;
    type << "its type is 0x" << std::hex << std::to_integer<int>(bytes[2]) << "; expected 0x8";
    fail(type.str());
  }
  const auto dimensions = std::to_integer<std::size_t>(bytes[3]);
  const std::size_t header = kMagicBytes + dimensions * kSizeBytes;
  if (dimensions == 0 || bytes.size() < header) {
    fail("it is cut off, or has no dimensions");
  }
  IdxArray array{{}, bytes.subspan(header)};
  const auto available = static_cast<std::int64_t>(array.values.size());
  std::int64_t count = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    array.sizes.push_back(big_endian(bytes.subspan(kMagicBytes + d * kSizeBytes, kSizeBytes)));
    // Below 2^63: both factors are, as `count` is at most what is available, or 1.
    if (array.sizes.back() != 0 && count > available / array.sizes.back()) {
      fail("its sizes need more than the " + std::to_string(available) +
           " bytes that follow them: it was cut off or its header is damaged");
    }
    count *= array.sizes.back();
  }
  if (count != available) {
    fail("its sizes need " + std::to_string(count) + " bytes, but " + std::to_string(available) +
         " follow them");
  }
  return array;
}

}  // namespace pareprop::data
