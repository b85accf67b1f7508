#pragma once

#include <ATen/core/Tensor.h>

#include "pareprop/reversible/stack_observer.h"

namespace pareprop {

// Takes gradients in the middle of a backward pass, as soon as they are final: they never come to
// Tensor::grad(). It may step an optimizer there (Note [Updates inside the backward pass]).
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;

  // Whether it takes those of this parameter of a stack. The answer never changes.
  virtual bool takes(const at::Tensor& parameter) const = 0;

  // What it takes of one block. Called for each block of a stack, from the last to the first, one
  // after another, on the thread of a lane and beside the recovery of lower blocks. All that reads
  // these parameters in this backward pass has ended. On an accelerator the current stream comes
  // after all work that made the gradients.
  virtual void take(const BlockGradients& block) = 0;

  // A sum to which the gradient of a parameter that it takes may be added while it is computed
  // (Note [Products added to sums]); undefined: none. If so, take() gets the sum, or another tensor
  // with what the sum should be. Called at most once for each parameter and backward pass of a
  // stack, on the threads of lanes.
  virtual at::Tensor sum_of(const at::Tensor& parameter) {
    (void)parameter;
    return {};
  }
};

}  // namespace pareprop
