#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Layer norm over the last dimension, as torch's; also on the meta device, where torch has it in
// Python only. weight and bias are (width).
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps);

}  // namespace pareprop
