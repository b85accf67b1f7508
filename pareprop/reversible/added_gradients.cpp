#include "pareprop/reversible/added_gradients.h"

#include <ATen/core/grad_mode.h>

namespace pareprop {

AddedGradients::AddedGradients(const Network& network) {
  for (const at::Tensor& weight : network.block_weights()) {
    if (weight.grad().defined()) of_blocks_.insert(weight.unsafeGetTensorImpl());
  }
}

bool AddedGradients::takes(const at::Tensor& parameter) const {
  return of_blocks_.contains(parameter.unsafeGetTensorImpl());
}

void AddedGradients::take(const BlockGradients& block) {
  at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < block.parameters.size(); ++i) {
    block.parameters[i].grad().add_(block.gradients[i]);
  }
}

}  // namespace pareprop
