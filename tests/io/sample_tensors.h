#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::io::testing {

inline const std::vector<at::ScalarType>& all_types() {
  static const std::vector<at::ScalarType> types = {
      at::kBool, at::kByte, at::kChar,     at::kShort, at::kInt,
      at::kLong, at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return types;
}

// Byte i is i * 131 + seed * 17 + 5 (its lowest bit for booleans): not-a-numbers with payloads,
// infinities and denormals are among it. safetensors_python_test.py has the same.
inline at::Tensor pattern(at::ScalarType type, const std::vector<std::int64_t>& shape, int seed) {
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(type));
  auto* bytes = static_cast<unsigned char*>(tensor.mutable_data_ptr());
  for (std::size_t i = 0; i < tensor.nbytes(); ++i) {
    const auto value =
        static_cast<unsigned char>(i * 131 + static_cast<std::size_t>(seed) * 17 + 5);
    bytes[i] = type == at::kBool ? value & 1 : value;
  }
  return tensor;
}

// Of every type a tensor of no, one, two and four dimensions and an empty one, each with a name
// that needs care. Names are "TYPE/RANK SUFFIX", see the Python test.
inline NamedTensors sample_tensors() {
  const std::vector<std::vector<std::int64_t>> shapes = {{}, {7}, {3, 5}, {2, 1, 3, 4}, {2, 0, 3}};
  const std::vector<std::string> suffixes = {"plain", "\"\\/\b\f\n\r\t\x01\x1f\x7f",
                                             "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xe2\x80\xa8",
                                             std::string(3000, 'n'), ""};
  NamedTensors tensors;
  int seed = 0;
  for (const at::ScalarType type : all_types()) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      tensors.emplace_back(
          std::string(at::toString(type)) + "/" + std::to_string(i) + " " + suffixes[i],
          pattern(type, shapes[i], seed++));
    }
  }
  return tensors;
}

}  // namespace pareprop::io::testing
