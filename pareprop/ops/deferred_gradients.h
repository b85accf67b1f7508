#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

namespace pareprop {

// Note [Deferred weight gradients]
// dX of a branch is on the critical path of the backward pass, dW is not. While a DeferScope is
// open on the thread that runs a backward, ops that support it (ops/linear.h) do not compute the
// gradients of their parameters but leave a closure here, and return none to autograd; run()
// computes them later, on any thread. Ops that do not support it compute them at once: right either
// way.
class DeferredGradients {
 public:
  void add(at::Tensor parameter, std::function<at::Tensor()> compute);
  bool empty() const { return entries_.empty(); }

  // Computes, hands over and forgets all entries, in the order they were added.
  std::vector<std::pair<at::Tensor, at::Tensor>> run();

 private:
  std::vector<std::pair<at::Tensor, std::function<at::Tensor()>>> entries_;
};

class DeferScope {
 public:
  explicit DeferScope(DeferredGradients* queue);  // nullptr: nothing is deferred
  ~DeferScope();
  DeferScope(const DeferScope&) = delete;
  DeferScope& operator=(const DeferScope&) = delete;

 private:
  DeferredGradients* previous_;
};

// The queue of this thread's innermost scope, or nullptr.
DeferredGradients* current_deferred();

}  // namespace pareprop
