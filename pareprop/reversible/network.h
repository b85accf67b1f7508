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

// What the planner, verify and the recorder need of a network: its stacks, its weights and one
// training step. models::Model is a Network. StackNetwork makes one from your own modules. All
// stacks of a network have the same coupling.
class Network {
 public:
  virtual ~Network() = default;

  // From input to output.
  virtual const std::vector<Stack>& stacks() const = 0;
  // All parameters, each once.
  virtual std::vector<at::Tensor> weights() const = 0;
  // Those that only blocks of one stack use: their gradients are final when their block's are. As
  // far as the stacks know; a network that uses weights of a stack elsewhere leaves them out.
  virtual std::vector<at::Tensor> block_weights() const;
  // Runs a forward and a backward pass over so many samples, on the device of the weights, and
  // adds the gradients to those of the weights. The same number of samples and the same pass give
  // the same gradients. On an accelerator the checks of the stacks are read once, at the end,
  // unless the pass leaves them to others (Note [Reads after the step]).
  virtual void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) = 0;
  // The same. Also returns the gradients of the inputs, if the network computes any.
  virtual std::vector<at::Tensor> step_to_inputs(std::int64_t samples,
                                                 const std::shared_ptr<Pass>& pass) {
    step(samples, pass);
    return {};
  }

  // The number of blocks of each stack, from input to output: a plan has a policy for each block.
  std::vector<int> depths() const;
  // Of its stacks; reversible if it has none.
  Coupling coupling() const;
  // Whether nothing of it can be recovered: its stacks have one stream, or there are none.
  bool plain() const;

  // The plan of the next steps. set_plan() throws std::invalid_argument if the plan does not fit
  // this network, and then changes nothing.
  StepPlan plan() const;
  void set_plan(const StepPlan& plan);
  // The plan that a mode stands for in this network.
  StepPlan plan_of(Mode mode) const { return pareprop::plan_of(mode, depths()); }
  void set_mode(Mode mode) { set_plan(plan_of(mode)); }
  // The modes with a fixed plan that it can have.
  std::vector<Mode> modes() const;
  // The plan that stores only what branches are run again from, and the mode that is most like it
  // without overlap.
  StepPlan recomputing_plan(bool overlap) const;
  Mode leanest_mode() const { return plain() ? Mode::checkpoint : Mode::reprop; }

  // The numerics of the next steps: those of the first stack. set_options() gives all stacks the
  // same.
  const StackOptions& options() const;
  void set_options(const StackOptions& options);
  // The rest of each stack's options stays.
  void set_numerics(Precision precision, Arithmetic arithmetic);

  // Runs the overlapped backward passes. Null: the network has its own executors, which its stacks
  // share.
  const std::shared_ptr<Executor>& executor() const { return executor_; }
  void set_executor(std::shared_ptr<Executor> executor);

  // If true, steps use ordinary autograd with everything stored: the reference of all tests.
  void set_reference(bool reference);

  // The largest drift of all stacks in their last backward passes.
  DriftReport drift() const;

 protected:
  // Throws std::invalid_argument if the plan does not fit depths().
  void check_step_plan(const StepPlan& plan) const;
  // Runs `step` with the pass, or with one like it whose checks are run after it.
  void run_checked(const std::shared_ptr<Pass>& pass,
                   const std::function<void(const std::shared_ptr<Pass>&)>& step) const;
  bool recompute_between() const { return recompute_between_; }
  void set_recompute_between(bool recompute) { recompute_between_ = recompute; }

 private:
  friend class NetworkRestored;
  void share_executors();

  StackOptions options_;  // of a network without stacks
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executors> executors_;
  bool recompute_between_ = false;
};

// While it lives, the meter tags the gradients that ordinary autograd makes for these weights as
// gradients. Stacks do this for their own weights. Weights that have hooks of Python are left out.
class TaggedGradients {
 public:
  explicit TaggedGradients(const std::vector<at::Tensor>& weights);
  ~TaggedGradients();
  TaggedGradients(const TaggedGradients&) = delete;
  TaggedGradients& operator=(const TaggedGradients&) = delete;

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

// Stacks with ordinary modules before, between and after them.
class StackNetwork : public Network {
 public:
  // One training step: forward pass, loss, loss.backward(). It must give `pass` to every stack that
  // it calls (CallOptions::pass): then the randomness can be repeated, and recovery of the next
  // stack can begin early.
  using Step = std::function<void(std::int64_t samples, const std::shared_ptr<Pass>& pass)>;

  // `stacks`: in the order in which a step calls them.
  StackNetwork(std::vector<Stack> stacks, std::vector<at::Tensor> weights, Step step);

  const std::vector<Stack>& stacks() const override { return stacks_; }
  std::vector<at::Tensor> weights() const override { return weights_; }
  // Throws std::runtime_error if the step changed no gradient: no backward pass was run.
  void step(std::int64_t samples, const std::shared_ptr<Pass>& pass) override;

 private:
  std::vector<Stack> stacks_;
  std::vector<at::Tensor> weights_;
  Step step_;
  TaggedGradients tagged_;
};

// Its destructor restores the plan and the executors that the network had, and the options and the
// executors of each stack.
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
  const std::shared_ptr<Executors> executors_;
  std::vector<std::pair<StackOptions, std::shared_ptr<Executors>>> stacks_;
};

// Drops the gradients of all weights.
void drop_gradients(const Network& network);

}  // namespace pareprop
