#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

// Note [Updates inside the backward pass]
// The gradients of a block are final long before those of the blocks below it. An optimizer that
// steps the block at once may free them: then the gradients of two blocks are alive instead of
// those of all weights. Nothing in the rest of the pass reads the block's weights again, as its
// recovery came before its gradients. Parameters outside of the stacks, or shared with something
// outside of their stack, are final when autograd has added up all that they get.

// While it lives, all gradients of a network that a backward pass computes go to `take`: those of
// blocks by the stacks (its pass must have this as its taker), each of the others alone, as block
// kOutside. None is left in Tensor::grad(). Weights that have a gradient already keep it, and what
// is taken includes it only outside of the stacks.
class TakenGradients final : public GradientTaker {
 public:
  static constexpr int kOutside = -1;
  using Take = std::function<void(const BlockGradients&)>;

  // The network outlives it. Throws std::invalid_argument if a weight has a hook of the kind that
  // runs after its gradient is accumulated: there is one for each.
  TakenGradients(const Network& network, Take take);
  ~TakenGradients() override;
  TakenGradients(const TakenGradients&) = delete;
  TakenGradients& operator=(const TakenGradients&) = delete;

  bool takes(const at::Tensor& parameter) const override;
  void take(const BlockGradients& block) override { take_(block); }

 private:
  Take take_;
  std::unordered_set<const c10::TensorImpl*> of_blocks_;
  std::vector<at::Tensor> hooked_;
};

}  // namespace pareprop
