#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "pareprop/reversible/stack.h"

namespace pareprop::models {

struct ForwardOptions {
  // Randomness and look-ahead across the model's stacks; null: a pass with seed 0 and a new step.
  std::shared_ptr<Pass> pass = nullptr;
  // Through ordinary autograd, everything stored: the oracle.
  bool reference = false;
};

// A network with reversible stacks inside.
class Model : public torch::nn::Module {
 public:
  // Class scores (batch, classes) of a batch of inputs.
  virtual at::Tensor forward(const at::Tensor& input, const ForwardOptions& options = {}) = 0;

  // An input of the right shape and random content, and targets for it.
  virtual at::Tensor example_input(std::int64_t batch, std::uint64_t seed) const = 0;
  virtual at::Tensor example_target(std::int64_t batch, std::uint64_t seed) const = 0;

  // From the input of the network on.
  const std::vector<Stack>& stacks() const { return stacks_; }

  // Gives `options` to every stack; all share one executor, and only the last one keeps a tail.
  void set_stack_options(StackOptions options);
  // The largest drift of all stacks in their last backward passes.
  DriftReport drift() const;

  std::int64_t parameter_count() const;

 protected:
  Stack add_stack(const std::string& name, std::vector<Block> blocks);
  std::shared_ptr<Pass> pass_for(const ForwardOptions& options);

 private:
  std::vector<Stack> stacks_;
  std::uint64_t steps_ = 0;
};

// The loss of a batch: cross entropy over the last dimension of `scores`.
at::Tensor classification_loss(const at::Tensor& scores, const at::Tensor& target);

}  // namespace pareprop::models
