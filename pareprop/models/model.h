#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/data/batch.h"
#include "pareprop/models/layers.h"
#include "pareprop/reversible/network.h"

namespace pareprop::models {

using data::Batch;

struct ForwardOptions {
  // Carries the seed, the step and the look-ahead between stacks. Null: seed 0 and a new step.
  std::shared_ptr<Pass> pass = nullptr;
  // Use ordinary autograd with everything stored: the reference of all tests.
  bool reference = false;
};

// A network that can be trained: stacks of reversible blocks inside, or (plain) of ordinary ones.
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
  // Parameters for whose names `trains` is false are frozen, the others are not.
  void train_only(const std::function<bool(const std::string& name)>& trains);
  std::vector<at::Tensor> block_weights() const override;
  // The data is example(samples, seed of the pass).
  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) override;
  std::vector<at::Tensor> step_to_inputs(std::int64_t samples,
                                         const std::shared_ptr<Pass>& pass) override;

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
  Stack add_stack(torch::nn::Module& owner, const std::string& name, std::vector<Block> blocks,
                  Coupling coupling = Coupling::reversible);
  // The same of ordinary blocks that have other modules before or behind them: the blocks
  // themselves are registered in `row`, as `first`, first + 1, ...
  Stack add_plain_row(torch::nn::Module& row, int first, std::vector<Block> blocks);
  // Runs a stack of two streams, which both begin as x.
  static std::pair<at::Tensor, at::Tensor> run_streams(const Stack& stack, const at::Tensor& x,
                                                       const CallOptions& call,
                                                       const ForwardOptions& options);
  // Runs a stack of one stream.
  static at::Tensor run_plain(const Stack& stack, const at::Tensor& x, const CallOptions& call,
                              const ForwardOptions& options);
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
  std::uint64_t steps_ = 0;
  std::optional<TaggedGradients> tagged_;  // from the first loss on
};

}  // namespace pareprop::models
