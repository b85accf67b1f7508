#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pareprop/graph/stack_plan.h"
#include "pareprop/reversible/branch.h"
#include "pareprop/reversible/drift.h"
#include "pareprop/reversible/pass.h"
#include "pareprop/reversible/stack_observer.h"
#include "pareprop/reversible/stack_options.h"

namespace pareprop {

class Executors;

// Optional arguments of a call of a stack, besides the two streams.
struct CallOptions {
  // Tensors for every branch: masks, bias tables, ... Those that require gradients get them.
  std::vector<at::Tensor> extras = {};
  // The pass of the model that this call belongs to. Null: the stack makes a new one.
  std::shared_ptr<Pass> pass = nullptr;
};

// Consecutive blocks, differentiated as one node of the autograd graph: reversible ones, or those
// of an ordinary network (Coupling), which have one stream and no policies anchor and reverse.
//
// Parameters are inputs of this node and their gradients are its outputs: autograd::grad, hooks,
// frozen and shared parameters work as with ordinary autograd. Several forward calls may come
// before one backward. Calls from several threads are safe if the forward of the branches is.
class StackImpl : public torch::nn::Module {
 public:
  explicit StackImpl(std::vector<Block> blocks, Mode mode = Mode::pareprop,
                     StackOptions options = {});
  StackImpl(std::vector<Block> blocks, StackPlan plan, StackOptions options = {});
  // Everything is stored until a plan says otherwise. Streams of ordinary blocks are not recovered,
  // and in floating arithmetic whatever the options say.
  StackImpl(std::vector<Block> blocks, Coupling coupling, StackOptions options = {});

  Coupling coupling() const { return coupling_; }

  // Returns y1 and y2. Throws std::invalid_argument if the streams differ in shape, dtype or
  // device, or are not float32 or float64; or if the coupling has one stream.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x1, const at::Tensor& x2,
                                            const CallOptions& call = {});

  // The same with ordinary autograd and everything stored. Tests compare forward() with it.
  std::pair<at::Tensor, at::Tensor> reference(const at::Tensor& x1, const at::Tensor& x2,
                                              const CallOptions& call = {});

  // The same of one stream. Throws std::invalid_argument if the coupling has two.
  at::Tensor forward(const at::Tensor& x, const CallOptions& call = {});
  at::Tensor reference(const at::Tensor& x, const CallOptions& call = {});

  // The inputs of which forward() made y1 and y2, up to rounding, without gradients. Dropout would
  // draw other masks: call eval() first.
  std::pair<at::Tensor, at::Tensor> inverse(const at::Tensor& y1, const at::Tensor& y2,
                                            const CallOptions& call = {});

  // All parameters of its branches, also of those that are no modules, each once.
  std::vector<at::Tensor> weights() const;

  int depth() const { return static_cast<int>(branches_->size() / 2); }

  // The plan of the next calls; calls that have begun keep their plan. set_plan() throws
  // std::invalid_argument if the plan does not fit a stack of this depth.
  const StackPlan& plan() const { return plan_; }
  void set_plan(StackPlan plan);

  // The numerics of the next calls.
  const StackOptions& options() const { return options_; }
  // Exact streams fix the order of sums (ops/sum_order.h).
  void set_options(const StackOptions& options);

  // Calls the functions of `observer` in every pass until the handle is destroyed. Several
  // observers may watch at the same time.
  Watch watch(StackObserver observer) const { return observers_->add(std::move(observer)); }
  // Who watches the next calls; calls that have begun keep theirs. Stacks may share a list.
  void set_observers(std::shared_ptr<ObserverList> observers);

  // Runs the overlapped backward passes of the next calls. Stacks may share one. Null: the stack
  // has its own executors, one for each device.
  const std::shared_ptr<Executors>& executors() const { return executors_; }
  void set_executor(std::shared_ptr<Executor> executor);
  void set_executors(std::shared_ptr<Executors> executors);

  // If true, forward() does what reference() does.
  void set_reference(bool reference) { reference_ = reference; }

  // The drift of the last backward pass whose checks have run (Note [Reads after the step]).
  DriftReport drift() const;
  // Internal: calls of the stack call this.
  void report(const DriftReport& drift);

 private:
  void add_blocks(std::vector<Block> blocks);
  std::shared_ptr<StackCall> begin_call(const CallOptions& call);
  std::shared_ptr<Pass> pass_for(const CallOptions& call);
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& x, const CallOptions& call,
                              bool reference);
  void check_streams(const std::vector<at::Tensor>& x) const;

  Coupling coupling_ = Coupling::reversible;
  std::shared_ptr<const std::vector<Branch>> branches_;
  StackPlan plan_;
  StackOptions options_;
  bool reference_ = false;
  std::shared_ptr<Executors> executors_;
  std::shared_ptr<ObserverList> observers_ = std::make_shared<ObserverList>();
  std::atomic<std::uint64_t> calls_{0};
  mutable std::mutex mutex_;
  DriftReport drift_;  // guarded by mutex_
};

// A shared handle, like every module holder of torch: copies share the parameters.
class Stack : public torch::nn::ModuleHolder<StackImpl> {
 public:
  using torch::nn::ModuleHolder<StackImpl>::ModuleHolder;
  Stack(std::vector<Block> blocks, Mode mode = Mode::pareprop,
        StackOptions options = {})  // NOLINT: not explicit, as for holders
      : ModuleHolder(std::make_shared<StackImpl>(std::move(blocks), mode, options)) {}
  Stack(std::vector<Block> blocks, StackPlan plan, StackOptions options = {})
      : ModuleHolder(std::make_shared<StackImpl>(std::move(blocks), std::move(plan), options)) {}
  Stack(std::vector<Block> blocks, Coupling coupling, StackOptions options = {})
      : ModuleHolder(std::make_shared<StackImpl>(std::move(blocks), coupling, options)) {}
};

}  // namespace pareprop
