#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Layer norm over the last dimension, like torch's. It also works on the meta device in C++, which
// torch's does not. weight and bias have the shape (width).
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

}  // namespace pareprop
