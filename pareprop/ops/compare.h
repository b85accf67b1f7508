#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace pareprop {

// The worst |dg| / max(|g|, 1e-4 * largest |g| of all) over pairs of tensors, by their 2-norms. A
// plain ratio would be noise where a gradient is zero (a key bias). Infinite where only one of a
// pair is defined, where shapes differ, and where a NaN is.
double max_relative_error(const std::vector<at::Tensor>& expected,
                          const std::vector<at::Tensor>& got);

bool bit_identical(const std::vector<at::Tensor>& expected, const std::vector<at::Tensor>& got);

}  // namespace pareprop
