#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "pareprop/ops/attention_inputs.h"
#include "pareprop/ops/fused_attention.h"
#include "pareprop/ops/random_stream.h"

namespace pareprop {

// Attention on the device path: by one of torch's fused kernels, or, with dropout, positions or in
// float64, composed of products and softmax. Neither keeps probabilities: the backward pass
// computes them again. Torch's kernels could draw their own dropout, but from the device's
// generator; ours must be drawn again from the branch's key.

FusedKernel device_kernel(const torch::autograd::variable_list& in,
                          const std::optional<MaskDraw>& dropout);

AttentionMade device_attention(FusedKernel kernel, const torch::autograd::variable_list& in,
                               const std::optional<MaskDraw>& dropout, bool for_backward);

// Gradients of all inputs; of the bias only where it is wanted. `doutput` is (batch, queries, heads
// * head).
torch::autograd::variable_list device_attention_backward(FusedKernel kernel,
                                                         const torch::autograd::variable_list& in,
                                                         const torch::autograd::variable_list& kept,
                                                         const std::optional<MaskDraw>& dropout,
                                                         const at::Tensor& doutput,
                                                         bool bias_wanted);

}  // namespace pareprop
