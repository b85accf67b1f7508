#include "pareprop/reversible/hooks_aside.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace pareprop {

HooksAside::HooksAside(const std::vector<at::Tensor>& leaves) {
  for (const at::Tensor& leaf : leaves) {
    auto& hooks = torch::autograd::impl::hooks(leaf);
    if (hooks.empty()) continue;
    aside_.emplace_back(leaf, std::move(hooks));
    hooks.clear();
  }
}

HooksAside::~HooksAside() {
  for (auto& [leaf, hooks] : aside_) torch::autograd::impl::hooks(leaf) = std::move(hooks);
}

}  // namespace pareprop
