#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace pareprop::data {

// An array of bytes in the format of the MNIST files.
struct IdxArray {
  std::vector<std::int64_t> sizes;
  std::span<const std::byte> values;  // part of what was parsed; the last dimension is contiguous
};

// Throws std::runtime_error when the bytes are no idx file, hold numbers of another type than
// unsigned bytes, or are not exactly as many as the sizes in the header say.
IdxArray parse_idx(std::span<const std::byte> bytes);

}  // namespace pareprop::data
