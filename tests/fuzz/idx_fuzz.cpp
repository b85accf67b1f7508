// libFuzzer: any bytes as an idx file, plain or gzip. They are refused with std::runtime_error, or
// the sizes cover the values.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <vector>

#include "pareprop/data/gzip.h"
#include "pareprop/data/images/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kLimit = 1 << 20;
  try {
    std::span bytes(reinterpret_cast<const std::byte*>(data), size);
    std::vector<std::byte> unpacked;
    if (pareprop::data::is_gzip(bytes)) {
      unpacked = pareprop::data::gunzip(bytes, kLimit);
      if (unpacked.size() > kLimit) std::abort();
      bytes = unpacked;
    }
    const auto array = pareprop::data::parse_idx(bytes);
    std::int64_t count = 1;
    for (const std::int64_t length : array.sizes) count *= length;
    if (count != static_cast<std::int64_t>(array.values.size())) std::abort();
  } catch (const std::runtime_error&) {
  }
  return 0;
}
