#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "pareprop/graph/stack_plan.h"
#include "pareprop/reversible/stack.h"

namespace pareprop {

// A network as planner, verify and recorder see it: its stacks, its weights and one training step.
// models::Model is one; StackNetwork is one made of a user's own modules.
class Network {
 public:
  virtual ~Network() = default;

  // Reversible stacks from the input of the network on; none in a plain one.
  virtual const std::vector<Stack>& stacks() const = 0;
  // All parameters, each once.
  virtual std::vector<at::Tensor> weights() const = 0;
  // A forward and a backward pass over so many samples, on the device of the weights. The same
  // number of samples and the same pass give the same gradients, which are added to those of the
  // weights.
  virtual void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) = 0;
  // The same, and the gradients of inputs, where the network knows of any that have one.
  virtual std::vector<at::Tensor> step_to_inputs(std::int64_t samples,
                                                 const std::shared_ptr<Pass>& pass) {
    step(samples, pass);
    return {};
  }

  // Blocks of each part that a plan has policies for: of each stack, from the input on.
  virtual std::vector<int> depths() const;

  // How the next steps are run. Throws std::invalid_argument when the plan is not one of this
  // network; nothing is changed then.
  virtual StepPlan plan() const;
  virtual void set_plan(const StepPlan& plan);
  // What a mode means for this network.
  StepPlan plan_of(Mode mode) const { return pareprop::plan_of(mode, depths()); }
  void set_mode(Mode mode) { set_plan(plan_of(mode)); }

  // What the next steps compute with: the same for all stacks.
  const StackOptions& options() const { return options_; }
  virtual void set_options(const StackOptions& options);

  // Who runs overlapped backward passes. Null: executors of the network's own, which its stacks
  // share.
  const std::shared_ptr<Executor>& executor() const { return executor_; }
  void set_executor(std::shared_ptr<Executor> executor);

  // While it is set, steps go through ordinary autograd, with everything stored: the oracle.
  void set_reference(bool reference);

  // The largest drift of all stacks in their last backward passes.
  DriftReport drift() const;

 protected:
  // Throws std::invalid_argument when the plan is not one for parts of depths().
  void check_step_plan(const StepPlan& plan) const;
  bool recompute_between() const { return recompute_between_; }
  void set_recompute_between(bool recompute) { recompute_between_ = recompute; }

 private:
  void share_executors();

  StackOptions options_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executors> executors_;
  bool recompute_between_ = false;
};

// Lets the meter count gradients that ordinary autograd makes for these weights as gradients, as
// stacks do for theirs. Until it goes.
class TaggedGradients {
 public:
  explicit TaggedGradients(const std::vector<at::Tensor>& weights);
  ~TaggedGradients();
  TaggedGradients(const TaggedGradients&) = delete;
  TaggedGradients& operator=(const TaggedGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

// Stacks with anything ordinary before, between and behind them.
class StackNetwork : public Network {
 public:
  // One training step: forward pass, loss, loss.backward(). It gives `pass` to every stack that it
  // calls (CallOptions::pass), so that their randomness can be repeated and recovery can begin in
  // the next stack early.
  using Step = std::function<void(std::int64_t samples, const std::shared_ptr<Pass>& pass)>;

  // `stacks` in the order in which a step calls them.
  StackNetwork(std::vector<Stack> stacks, std::vector<at::Tensor> weights, Step step);

  const std::vector<Stack>& stacks() const override { return stacks_; }
  std::vector<at::Tensor> weights() const override { return weights_; }
  // Throws std::runtime_error when the step leaves no gradient in any weight.
  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) override;

 private:
  std::vector<Stack> stacks_;
  std::vector<at::Tensor> weights_;
  Step step_;
  TaggedGradients tagged_;
};

// Restores plan, options and executor of a network when it goes: whoever tries something leaves no
// trace.
class NetworkRestored {
 public:
  explicit NetworkRestored(Network& network);
  ~NetworkRestored();
  NetworkRestored(const NetworkRestored&) = delete;
  NetworkRestored& operator=(const NetworkRestored&) = delete;

 private:
  Network& network_;
  const StepPlan plan_;
  const StackOptions options_;
  const std::shared_ptr<Executor> executor_;
};

// Drops the gradients of all weights.
void drop_gradients(const Network& network);

}  // namespace pareprop
