#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop {

struct ConvShape {
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros at every side
  std::int64_t groups = 1;   // of channels that do not see each other
};

// Convolves maps x (batch, height, width, in) with weight (out, in / groups, kernel, kernel) and
// adds bias (out) or nothing where it is undefined; the result is (batch, height', width', out).
// Computed and returned in the type of the weight, whatever that of x and under autocast too. Also
// on the meta device.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const ConvShape& shape);

}  // namespace pareprop
