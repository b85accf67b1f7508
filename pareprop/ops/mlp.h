#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// gelu(x w1^T + b1) w2^T + b2 as one autograd node: x (..., in), w1 (hidden, in), w2 (out, hidden).
// Without a graph it keeps nothing; on a lean tape the first product, without its GELU. Weight
// gradients can be deferred, and with `output_needed` false the last product is skipped, as in
// ops/linear.h. On the CPU it works part by part; elsewhere see ops/device_mlp.h.
at::Tensor mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1,
               const at::Tensor& w2, const at::Tensor& b2, bool output_needed = true);

}  // namespace pareprop
