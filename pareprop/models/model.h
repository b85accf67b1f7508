#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/data/batch.h"
#include "pareprop/models/layers.h"
#include "pareprop/models/plain_blocks.h"
#include "pareprop/reversible/network.h"

namespace pareprop::models {

using data::Batch;

struct ForwardOptions {
  // Carries the seed, the step and the look-ahead between stacks. Null: seed 0 and a new step.
  std::shared_ptr<Pass> pass = nullptr;
  // Use ordinary autograd with everything stored: the reference of all tests.
  bool reference = false;
};

// A network that can be trained: reversible stacks inside, or (plain) ordinary blocks.
class Model : public torch::nn::Module, public Network {
 public:
  // Scores (rows, classes). A row is a sample, or a token that is scored.
  virtual at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) = 0;

  // The target of each row of forward().
  virtual at::Tensor row_targets(const Batch& batch) const { return batch.target; }

  // A batch of the right shape with random content. On the model's device.
  virtual Batch example(std::int64_t batch, std::uint64_t seed) const = 0;

  // Tokens of a sample at the first block.
  virtual std::int64_t tokens() const = 0;

  // Mean cross entropy. If `scores` is not null, it gets the scores of the rows, without gradient.
  at::Tensor loss(const Batch& batch, const ForwardOptions& options = {},
                  at::Tensor* scores = nullptr);

  const std::vector<Stack>& stacks() const override { return stacks_; }
  std::vector<at::Tensor> weights() const override { return parameters(); }
  std::vector<at::Tensor> block_weights() const override;
  // The data is example(samples, seed of the pass).
  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) override;
  std::vector<at::Tensor> step_to_inputs(std::int64_t samples,
                                         const std::shared_ptr<Pass>& pass) override;

  // In a plain network a plan has policies for its rows of blocks, and only store or checkpoint:
  // set_plan() throws std::invalid_argument for others.
  std::vector<int> depths() const override;
  StepPlan plan() const override;
  void set_plan(const StepPlan& plan) override;
  void set_options(const StackOptions& options) override;

  std::int64_t parameter_count() const;
  at::TensorOptions weight_options() const;  // dtype and device of the weights

 protected:
  struct ScoredLoss {
    at::Tensor loss;
    at::Tensor scores;  // without gradient
  };
  // Computes loss(), from the scores of forward() unless a network can do it in less memory.
  virtual ScoredLoss scored_loss(const Batch& batch, const ForwardOptions& options);

  // Registers the stack as `name` in `owner`, a part of this model or the model itself.
  Stack add_stack(torch::nn::Module& owner, const std::string& name, std::vector<Block> blocks);
  // Adds the next row of blocks of a plain network, from input to output.
  std::shared_ptr<PlainBlocks> add_plain_blocks(PlainBlocks blocks);
  std::shared_ptr<Pass> pass_for(const ForwardOptions& options);

  // Runs a part between stacks, in the precision of the stacks; the result has the type of x. The
  // part is recomputed if the plan says so. `stage` and `part` number the parts, for randomness.
  at::Tensor run_between(const Branch& module, const at::Tensor& x, std::uint64_t stage,
                         std::uint64_t part, const Pass& pass, const ForwardOptions& options) const;
  Precision precision() const { return options().precision; }
  // Runs a layer at the input or the output of the network.
  at::Tensor run_outside(LinearLayer& layer, const at::Tensor& x) const;

 private:
  std::vector<Stack> stacks_;
  std::vector<std::shared_ptr<PlainBlocks>> plain_blocks_;  // none in a reversible network
  std::uint64_t steps_ = 0;
  std::optional<TaggedGradients> tagged_;  // from the first loss on
};

}  // namespace pareprop::models
