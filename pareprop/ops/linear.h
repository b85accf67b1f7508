#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Like torch's linear, also under autocast: x (..., in), weight (out, in), bias (out) or undefined.
// Two differences: the weight gradients can be deferred (ops/deferred_gradients.h). And if
// `output_needed` is false, linear() records what the backward pass needs and skips the product;
// the values of the output are then unspecified.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                  bool output_needed = true);

// A tensor like x, but with `width` as its last size, and without memory: ops return it for an
// output that is not needed.
at::Tensor unspecified(const at::Tensor& x, std::int64_t width);

}  // namespace pareprop
