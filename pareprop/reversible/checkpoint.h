#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "pareprop/ops/precision.h"
#include "pareprop/reversible/branch.h"

namespace pareprop {

struct CheckpointOptions {
  // Tensors passed on to the module; those that require gradient receive it.
  std::vector<at::Tensor> extras = {};
  // What pareprop::dropout and drop_path inside draw from: use another for each call.
  std::uint64_t random_key = 0;
  Precision precision = Precision::fp32;
};

// Runs an ordinary module or callable keeping only its input, and runs it again in the backward
// pass: libtorch's missing torch.utils.checkpoint. The same masks are drawn, under the same
// autocast, and the caller's generators are not touched. Unlike a branch, the output may have any
// shape. Parameters are inputs of the autograd node, as with Stack.
at::Tensor checkpoint(const Branch& module, const at::Tensor& x,
                      const CheckpointOptions& options = {});

}  // namespace pareprop
