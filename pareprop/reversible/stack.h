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

// What a call of a stack may be given besides the two streams.
struct CallOptions {
  // Passed on to every branch: masks, bias tables, ... Those that require gradient receive it.
  std::vector<at::Tensor> extras = {};
  // The pass of the model that this call belongs to; null: a new one of the stack's own.
  std::shared_ptr<Pass> pass = nullptr;
};

// Consecutive reversible blocks, differentiated as one node of the autograd graph.
//
// Parameters are inputs of that node and their gradients its outputs: autograd::grad, hooks, frozen
// and shared parameters work as with ordinary autograd. Several calls may be open before one
// backward. Calls from several threads are safe as long as the branches' own forward is.
class StackImpl : public torch::nn::Module {
 public:
  explicit StackImpl(std::vector<Block> blocks, Mode mode = Mode::pareprop,
                     StackOptions options = {});
  StackImpl(std::vector<Block> blocks, StackPlan plan, StackOptions options = {});

  // y1 and y2. Throws std::invalid_argument when the streams differ in shape, dtype or device or
  // are not float32 or float64.
  std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& x1, const at::Tensor& x2,
                                            const CallOptions& call = {});

  // The same through ordinary autograd, everything stored: what forward() is compared with.
  std::pair<at::Tensor, at::Tensor> reference(const at::Tensor& x1, const at::Tensor& x2,
                                              const CallOptions& call = {});

  int depth() const { return static_cast<int>(branches_->size() / 2); }

  // How the next calls are trained; calls under way keep theirs. set_plan() throws
  // std::invalid_argument when the plan is not one of a stack of this depth.
  const StackPlan& plan() const { return plan_; }
  void set_plan(StackPlan plan);

  // What the next calls compute with.
  const StackOptions& options() const { return options_; }
  void set_options(const StackOptions& options) { options_ = options; }

  // Until the handle goes, `observer` is told of every pass. Several may watch at once.
  Watch watch(StackObserver observer) const { return observers_->add(std::move(observer)); }

  // Who runs overlapped backward passes of the next calls; may be shared by stacks. Null: executors
  // of the stack's own, by device.
  void set_executor(std::shared_ptr<Executor> executor);
  void set_executors(std::shared_ptr<Executors> executors);

  // While it is set, forward() is reference().
  void set_reference(bool reference) { reference_ = reference; }

  // Of the last backward pass that ended.
  DriftReport drift() const;
  // For the autograd node.
  void report(const DriftReport& drift);

 private:
  void add_blocks(std::vector<Block> blocks);
  std::shared_ptr<StackCall> begin_call(const CallOptions& call);
  std::shared_ptr<Pass> pass_for(const CallOptions& call);
  void check_streams(const at::Tensor& x1, const at::Tensor& x2) const;

  std::shared_ptr<const std::vector<Branch>> branches_;
  StackPlan plan_;
  StackOptions options_;
  bool reference_ = false;
  std::shared_ptr<Executors> executors_;
  const std::shared_ptr<ObserverList> observers_ = std::make_shared<ObserverList>();
  std::atomic<std::uint64_t> calls_{0};
  mutable std::mutex mutex_;
  DriftReport drift_;  // guarded by mutex_
};

// A shared handle, as every module of torch has; copies share parameters.
class Stack : public torch::nn::ModuleHolder<StackImpl> {
 public:
  using torch::nn::ModuleHolder<StackImpl>::ModuleHolder;
  Stack(std::vector<Block> blocks, Mode mode = Mode::pareprop,
        StackOptions options = {})  // NOLINT: not explicit, as for holders
      : ModuleHolder(std::make_shared<StackImpl>(std::move(blocks), mode, options)) {}
  Stack(std::vector<Block> blocks, StackPlan plan, StackOptions options = {})
      : ModuleHolder(std::make_shared<StackImpl>(std::move(blocks), std::move(plan), options)) {}
};

}  // namespace pareprop
