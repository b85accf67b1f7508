#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// The mean over tokens of layer_norm(cat({y1, y2}, -1)), (batch, 2 * width), as one autograd node
// that keeps nothing of the size of its inputs. y1 and y2 are (batch, tokens, width) of the same
// type, which is also the result's; weight and bias (2 * width).
at::Tensor pooled_norm(const at::Tensor& y1, const at::Tensor& y2, const at::Tensor& weight,
                       const at::Tensor& bias, double eps);

}  // namespace pareprop
