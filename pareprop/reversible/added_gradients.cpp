#include "pareprop/reversible/added_gradients.h"

#include <ATen/core/grad_mode.h>

namespace pareprop {

AddedGradients::AddedGradients(const Network& network, Products products) : products_(products) {
  for (const at::Tensor& weight : network.block_weights()) {
    if (weight.grad().defined()) of_blocks_.insert(weight.unsafeGetTensorImpl());
  }
}

bool AddedGradients::takes(const at::Tensor& parameter) const {
  return of_blocks_.contains(parameter.unsafeGetTensorImpl());
}

at::Tensor AddedGradients::sum_of(const at::Tensor& parameter) {
  const at::Tensor& sum = parameter.grad();
  if (products_ == Products::made_first || !sum.is_contiguous()) return {};
  std::lock_guard lock(mutex_);
  given_.insert(parameter.unsafeGetTensorImpl());
  return sum;
}

void AddedGradients::take(const BlockGradients& block) {
  at::NoGradGuard no_grad;
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    const at::Tensor& sum = block.parameters[i].grad();
    const at::Tensor& gradient = block.gradients[i];
    if (given_.erase(block.parameters[i].unsafeGetTensorImpl()) == 0) {
      sum.add_(gradient);
    } else if (!gradient.is_same(sum)) {
      sum.copy_(gradient);
    }
  }
}

}  // namespace pareprop
