#include "pareprop/ops/deferred_gradients.h"

namespace pareprop {
namespace {
thread_local DeferredGradients* current_queue = nullptr;
}

void DeferredGradients::add(at::Tensor parameter, std::function<at::Tensor()> compute) {
  entries_.emplace_back(std::move(parameter), std::move(compute));
}

std::vector<std::pair<at::Tensor, at::Tensor>> DeferredGradients::run() {
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients;
  gradients.reserve(entries_.size());
  for (auto& [parameter, compute] : entries_) {
    gradients.emplace_back(parameter, compute());
    compute = nullptr;  // frees what it held before the next one allocates
  }
  entries_.clear();
  return gradients;
}

DeferScope::DeferScope(DeferredGradients* queue) : previous_(current_queue) {
  current_queue = queue;
}
DeferScope::~DeferScope() { current_queue = previous_; }

DeferredGradients* current_deferred() { return current_queue; }

}  // namespace pareprop
