#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "pareprop/models/layers.h"
#include "pareprop/reversible/stack.h"

namespace pareprop::models {

// What a network of any family is given.
struct Batch {
  at::Tensor input;      // images (batch, channels, height, width), or token ids (batch, length)
  at::Tensor target;     // classes (batch), or token ids (batch, length), -100 where none is scored
  at::Tensor mask = {};  // of tokens: bool (batch, length), false where padded; undefined: nowhere
};

struct ForwardOptions {
  // Randomness and look-ahead across the model's stacks; null: a pass with seed 0 and a new step.
  std::shared_ptr<Pass> pass = nullptr;
  // Through ordinary autograd, everything stored: the oracle.
  bool reference = false;
};

// A network that can be trained: reversible stacks inside, or (plain) ordinary blocks.
class Model : public torch::nn::Module {
 public:
  // Scores (rows, classes). A row is a sample, or a token that is scored.
  virtual at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) = 0;

  // The target of each row of forward().
  virtual at::Tensor row_targets(const Batch& batch) const { return batch.target; }

  // A batch of the right shape with random content. On the model's device.
  virtual Batch example(std::int64_t batch, std::uint64_t seed) const = 0;

  // Tokens of a sample where the blocks begin.
  virtual std::int64_t tokens() const = 0;

  // Mean cross entropy. `scores`, where given, gets those of the rows, without gradient.
  at::Tensor loss(const Batch& batch, const ForwardOptions& options = {},
                  at::Tensor* scores = nullptr);

  // Reversible stacks from the input of the network on; none in a plain one.
  const std::vector<Stack>& stacks() const { return stacks_; }

  // Gives `options` to every stack; all share one executor, and only the last one keeps a tail. A
  // plain network knows the modes stored and checkpoint, and throws std::invalid_argument for
  // others.
  virtual void set_stack_options(StackOptions options);
  // The largest drift of all stacks in their last backward passes.
  DriftReport drift() const;

  std::int64_t parameter_count() const;
  at::TensorOptions weight_options() const;  // dtype and device of the weights

 protected:
  struct ScoredLoss {
    at::Tensor loss;
    at::Tensor scores;  // without gradient
  };
  // What loss() gives: by the scores of forward(), unless a network has a leaner way.
  virtual ScoredLoss scored_loss(const Batch& batch, const ForwardOptions& options);

  // Registers the stack as `name` in `owner`, a part of this model or the model itself.
  Stack add_stack(torch::nn::Module& owner, const std::string& name, std::vector<Block> blocks);
  std::shared_ptr<Pass> pass_for(const ForwardOptions& options);

  // What lies outside of the stacks has their precision too, and gives values in the type of x.
  // Parts between stacks are recomputed in mode checkpoint, and where the options of the stacks say
  // so. `stage` and `part` say which one it is, for its randomness.
  at::Tensor run_between(const Branch& module, const at::Tensor& x, std::uint64_t stage,
                         std::uint64_t part, const Pass& pass, const ForwardOptions& options) const;
  Precision precision() const { return precision_; }
  // A layer at the input or the output.
  at::Tensor run_outside(LinearLayer& layer, const at::Tensor& x) const;

 private:
  // Lets the meter know gradients that ordinary autograd makes, as stacks do for theirs.
  void tag_gradients();

  std::vector<Stack> stacks_;
  Mode between_ = Mode::stored;
  Precision precision_ = Precision::fp32;
  std::uint64_t steps_ = 0;
  bool gradients_tagged_ = false;
};

}  // namespace pareprop::models
