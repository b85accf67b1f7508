#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "pareprop/ops/precision.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/branch.h"

namespace pareprop {

struct CheckpointOptions {
  // Tensors for the module. Those that require gradients get them.
  std::vector<at::Tensor> extras = {};
  // The random key of pareprop::dropout and drop_path in the module: use another for each call.
  RandomKey random_key = {};
  Precision precision = Precision::fp32;
};

// Runs an ordinary module or callable, keeps only its input, and runs it again in the backward
// pass: what torch.utils.checkpoint does in Python. The second run has the same dropout masks and
// the same autocast, and does not touch the caller's random generators. Unlike that of a branch,
// the output may have any shape. Parameters are inputs of the autograd node, as with Stack.
at::Tensor checkpoint(const Branch& module, const at::Tensor& x,
                      const CheckpointOptions& options = {});

}  // namespace pareprop
