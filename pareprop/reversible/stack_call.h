#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/graph/keep_plan.h"
#include "pareprop/graph/stack_plan.h"
#include "pareprop/lanes/executor.h"
#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/reversible/branch.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/reversible/drift.h"
#include "pareprop/reversible/gradient_slots.h"
#include "pareprop/reversible/pass.h"
#include "pareprop/reversible/range_probe.h"
#include "pareprop/reversible/stack_observer.h"
#include "pareprop/reversible/stack_options.h"
#include "pareprop/reversible/tape.h"
#include "pareprop/reversible/version_guard.h"

namespace pareprop {

// One call of a stack: what its forward pass kept, and the tasks of its backward pass. All state of
// the call is here and none in the stack, so several calls may be open at once, and evaluation
// between a forward and its backward disturbs nothing. Letters as in Note [The chain of branches].
class StackCall : public std::enable_shared_from_this<StackCall> {
 public:
  // What the call takes over from its stack.
  struct Setup {
    std::shared_ptr<const std::vector<Branch>> branches;
    Coupling coupling = Coupling::reversible;
    StackPlan plan;
    StackOptions options;
    std::shared_ptr<const ObserverList> observers;
  };
  StackCall(Setup setup, std::shared_ptr<Pass> pass, std::vector<at::Tensor> extras);

  // Who runs the backward pass, if the plan overlaps; else the thread that calls it. On streams the
  // forward pass too: autograd runs gradients on the streams that recorded their tapes.
  void run_on(std::shared_ptr<Executor> executor) { executor_ = std::move(executor); }

  // As many streams as the coupling has, in and out. With `for_backward` false nothing is kept.
  // Call once.
  std::vector<at::Tensor> forward(const std::vector<at::Tensor>& x, bool for_backward);
  // The same as one ordinary autograd graph, with the same randomness: the oracle. Floating
  // arithmetic.
  std::vector<at::Tensor> forward_with_autograd(const std::vector<at::Tensor>& x);
  // The streams whose outputs are y1 and y2, recovered. Without gradients. Call once.
  std::pair<at::Tensor, at::Tensor> inverse(const at::Tensor& y1, const at::Tensor& y2);

  // The differentiable inputs besides the streams: extra arguments, then parameters, each once.
  std::vector<at::Tensor> leaves() const;

  // Gradients of the streams and of leaves(). Of two streams one gradient may be undefined: zero.
  // With `keep` the call can be differentiated again.
  std::vector<at::Tensor> backward(std::vector<at::Tensor> dy, bool keep);

  // Who is told of the drift of each backward pass, when it is known (Note [Reads after the step]).
  void report_to(std::function<void(const DriftReport&)> report) { report_ = std::move(report); }
  // Frees everything; backward() fails from then on.
  void release();

 private:
  void collect_leaves();
  void remember_versions(const std::vector<at::Tensor>& x);
  int first_block(const std::vector<at::Tensor>& x) const;
  BranchSetting setting(int k) const;
  void run_forward(int k, std::vector<at::Tensor>& u, RangeProbe& range, bool for_backward);
  at::Tensor joined(at::Tensor u, const at::Tensor& f, at::ScalarType dtype) const;
  bool on_streams() const { return executor_ && executor_->asynchronous(); }
  int ahead() const { return plan_.ahead(on_streams(), coupling_); }
  double drift_limit() const;
  bool defers_checks() const { return checks_ == pass_->checks(); }
  // Tells of a pass: now, or on an accelerator when the checks run (Note [Reads after the step]).
  void when_done(std::function<void()> tell);

  bool begin_recovery(bool keep);
  std::vector<at::Tensor> branch_leaves(int k) const;
  std::vector<at::Tensor> own_leaves(int k) const;  // as in TapeOptions
  void run_task(const Task& task, bool keep);
  void recover(int k);
  void join_recovered(int k, const at::Tensor& f, bool output_skipped);
  void run_again(int k, const at::Tensor& f, bool output_skipped);
  void gradient(int k, bool keep);
  void weight_gradient(int k);
  void update(int block);
  bool delivers_later(int k) const;
  void deliver(int k, std::vector<at::Tensor> gradients);
  // Of the leaves of branch k.
  std::optional<std::size_t> place_of(int k, const at::Tensor& parameter) const;
  // Where the gradient of a parameter of branch k is added to while it is computed.
  at::Tensor sum_of(int k, const at::Tensor& parameter);
  // For a task: it is the last to use this. Note [Memory between lanes].
  template <typename Used>
  void done_with(Used used, int owner = Executor::kAnyLane);
  at::Tensor sum(at::Tensor a, at::Tensor b);
  void check_drift();
  void check_missing(const std::vector<at::Tensor>& gradients) const;
  void check_gradient(std::size_t slot, const at::Tensor& gradient) const;
  void end_backward(bool keep);

  int branches() const { return static_cast<int>(branches_->size()); }
  bool reversible() const { return is_reversible(coupling_); }
  std::size_t input(int k) const { return static_cast<std::size_t>(input_of(coupling_, k)); }
  std::size_t output(int k) const { return static_cast<std::size_t>(output_of(coupling_, k)); }

  // Constant after the forward pass.
  const std::shared_ptr<const std::vector<Branch>> branches_;
  const Coupling coupling_;
  const StackPlan plan_;
  const StackOptions options_;
  const std::shared_ptr<const ObserverList> observers_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Pass> pass_;
  std::vector<at::Tensor> extras_;       // as the caller gave them
  std::vector<at::Tensor> tape_extras_;  // those that need gradients as leaves of the tapes
  int position_ = 0;                     // in the pass
  c10::Device device_ = c10::Device(c10::DeviceType::CPU);
  KeepPlan keep_;
  std::optional<StreamArithmetic> arithmetic_;
  AutocastState autocast_;
  std::vector<GradientSlots::Slot> slots_;
  std::vector<std::vector<int>> branch_slots_;  // by branch: slots it may give gradients to
  VersionGuard versions_;
  bool one_input_ = false;  // both streams entered as one tensor

  // Kept from the forward pass; emptied by a backward pass that does not keep.
  std::vector<at::Tensor> kept_;  // u[k] or v[k]; undefined: not kept
  std::vector<Tape> tapes_;       // by branch, kept or recovered

  // The backward pass under way. live_ belongs to the recover chain, upper_ and lower_ to the
  // gradient chain, the rest to one branch each: the graph's edges order all access.
  bool recovering_ = false;
  bool deferring_ = false;
  int ready_ = 0;                 // topmost branches that the stack above recovered for this one
  std::vector<at::Tensor> live_;  // u[k] or v[k] as far as recovery still reads it
  at::Tensor upper_, lower_;      // du[k+2] and du[k+1]; in one stream dv[k+1] and none
  std::vector<DeferredGradients> deferred_;
  std::vector<std::vector<at::Tensor>> borrowed_;  // what they read that other lanes allocated
  std::vector<std::vector<at::Tensor>> waiting_;  // gradients of a branch whose others are deferred
  std::unique_ptr<GradientSlots> gradients_;
  std::vector<bool> taken_;   // by slot: whether its gradient was given away
  std::vector<char> summed_;  // by slot: whether a sum was given for it; of one branch each
  std::unique_ptr<DriftProbe> probe_;
  std::shared_ptr<StackCall> below_;
  std::function<void(const DriftReport&)> report_;
  std::shared_ptr<DeferredChecks> checks_;  // the pass's, or those of this call
  bool released_ = false;
};

}  // namespace pareprop
