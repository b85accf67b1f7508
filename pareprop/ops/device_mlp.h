#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// mlp() on the device path: four large operators instead of parts that stay in a cache. It keeps
// the sums before GELU and, unless its tape is lean, GELU of them.
at::Tensor device_mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1,
                      const at::Tensor& w2, const at::Tensor& b2, bool output_needed);

}  // namespace pareprop
