#pragma once

#include <mutex>
#include <unordered_set>

#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

// Gradient accumulation: adds the gradients of a block to those that its weights have already, in
// place: those of matrix products while they are made, the others as soon as they are final. Then
// they are freed. Autograd would hold the new gradients of a whole stack until the end of its
// backward pass, and read them from memory again. Weights outside of the stacks are left to
// autograd, which adds them up one by one.
class AddedGradients final : public GradientTaker {
 public:
  // Not in products, gradients are what this backward pass made when observers get them, and the
  // sums have the bits that autograd's have.
  enum class Products { added_to_sums, made_first };

  explicit AddedGradients(const Network& network, Products products = Products::added_to_sums);

  // Only weights that have a gradient when it is made.
  bool takes(const at::Tensor& parameter) const override;
  at::Tensor sum_of(const at::Tensor& parameter) override;
  void take(const BlockGradients& block) override;

 private:
  const Products products_;
  std::unordered_set<const c10::TensorImpl*> of_blocks_;
  std::mutex mutex_;
  std::unordered_set<const c10::TensorImpl*> given_;  // sums, in this pass; guarded by mutex_
};

}  // namespace pareprop
