#pragma once

#include <ATen/core/Tensor.h>

#include "pareprop/ops/attention_inputs.h"

namespace pareprop {

// Torch's attention kernels that keep no probabilities: their backward pass computes them again
// from the logarithms of the sums of exponentials, which are kept instead.
enum class FusedKernel {
  none,          // of these inputs: they are composed
  flash,         // CUDA, half precision, no bias
  efficient,     // CUDA, also float32, any bias
  cudnn,         // CUDA, half precision, a bias that receives no gradient
  overrideable,  // of other devices that have it
  cpu            // for tests of the device path
};

// Which one computes on inputs like these: the one that torch would choose. It does not depend on
// whether a graph is recorded, so that a recomputation has the bits of the forward pass. A kernel
// has no dropout of ours and no positions, and float64 has none.
FusedKernel fused_kernel_for(const torch::autograd::variable_list& in);

// With `for_backward` it keeps the output by heads, the logarithms and what the kernel's backward
// asks for. The meta device gets what CUDA would allocate.
AttentionMade fused_attention(FusedKernel kernel, const torch::autograd::variable_list& in,
                              bool for_backward);

// Gradients of q, k, v and (where `bias_wanted`) the bias. `doutput` by heads.
torch::autograd::variable_list fused_attention_backward(FusedKernel kernel,
                                                        const torch::autograd::variable_list& in,
                                                        const torch::autograd::variable_list& kept,
                                                        const at::Tensor& doutput,
                                                        bool bias_wanted);

}  // namespace pareprop
