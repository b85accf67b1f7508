#pragma once

#include <unordered_set>

#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

// Gradient accumulation: adds the gradients of a block to those that its weights have already, in
// place, as soon as they are final, and frees them. Autograd would hold the new gradients of a
// whole stack until the end of its backward pass, and read them from memory again. Weights outside
// of the stacks are left to autograd, which adds them up one by one. The sums have the same bits.
class AddedGradients final : public GradientTaker {
 public:
  explicit AddedGradients(const Network& network);

  // Only weights that have a gradient when it is made.
  bool takes(const at::Tensor& parameter) const override;
  void take(const BlockGradients& block) override;

 private:
  std::unordered_set<const c10::TensorImpl*> of_blocks_;
};

}  // namespace pareprop
