#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// x (..., in) times weight^T (out, in) plus bias (out) or undefined; as torch's linear, autocast
// included, with two things more: its weight gradients can be deferred (ops/deferred_gradients.h),
// and with `output_needed` false it records what its backward needs but skips the product: the
// values of the output are then unspecified.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {},
                  bool output_needed = true);

// A tensor like x but `width` wide, without values or memory for them: what ops return for an
// output that nobody needs.
at::Tensor unspecified(const at::Tensor& x, std::int64_t width);

}  // namespace pareprop
