#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::optim::testing {

// Leaves with values drawn from `seed`: a matrix, a bias, a table of positions, and a matrix that
// is neither a multiple of any vector's length nor small.
inline io::NamedTensors random_parameters(std::uint64_t seed, at::ScalarType type = at::kFloat) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto draw = [&](const std::vector<std::int64_t>& shape) {
    return at::randn(shape, generator).to(type).requires_grad_(true);
  };
  return {{"pos_embed", draw({1, 5, 8})},
          {"fc1.weight", draw({7, 5})},
          {"fc1.bias", draw({7})},
          {"fc2.weight", draw({509, 307})}};
}

inline void random_gradients(const io::NamedTensors& parameters, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const auto& [name, parameter] : parameters) {
    parameter.mutable_grad() = at::randn(parameter.sizes(), generator).to(parameter.scalar_type());
  }
}

inline io::NamedTensors copies_of(const io::NamedTensors& parameters) {
  io::NamedTensors copies;
  for (const auto& [name, parameter] : parameters) {
    copies.emplace_back(name, parameter.detach().clone().requires_grad_(true));
  }
  return copies;
}

inline void expect_equal(const io::NamedTensors& a, const io::NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

}  // namespace pareprop::optim::testing
