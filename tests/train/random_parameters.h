#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::train::testing {

// Leaves with values drawn from `seed`: a matrix, a bias, a table of positions, and a matrix that
// is neither a multiple of any vector's length nor small.
inline io::NamedTensors random_parameters(std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto draw = [&](const std::vector<std::int64_t>& shape) {
    return at::randn(shape, generator).requires_grad_(true);
  };
  return {{"pos_embed", draw({1, 5, 8})},
          {"fc1.weight", draw({7, 5})},
          {"fc1.bias", draw({7})},
          {"fc2.weight", draw({509, 307})}};
}

inline void random_gradients(const io::NamedTensors& parameters, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() = at::randn(parameter.sizes(), generator);
  }
}

}  // namespace pareprop::train::testing
