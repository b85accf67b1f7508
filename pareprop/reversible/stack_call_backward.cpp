#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <stdexcept>

#include "pareprop/graph/schedule.h"
#include "pareprop/lanes/serial_lane.h"
#include "pareprop/lanes/span_recorder.h"
#include "pareprop/lanes/stream_lanes.h"
#include "pareprop/memory/meter.h"
#include "pareprop/reversible/hooks_aside.h"
#include "pareprop/reversible/stack_call.h"

namespace pareprop {
namespace {

at::Tensor sum(at::Tensor a, at::Tensor b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (sole_owner(a)) return a.add_(b);
  if (sole_owner(b)) return b.add_(a);
  return a.add(b);
}

// Lanes hand tensors to each other; an accelerator must know who still reads them.
void reads(const at::Tensor& t) {
  if (t.defined() && !t.device().is_cpu()) record_on_current_stream(t.storage());
}

}  // namespace

double StackCall::drift_limit() const {
  if (arithmetic_->exact()) return 0.0;
  if (options_.drift_limit > 0.0) return options_.drift_limit;
  if (autocast_.enabled) return 0.1;  // one flipped rounding of a bf16 branch is 1/256 of its value
  return options_.precision == Precision::fp64 ? 1e-6 : 1e-3;
}

bool StackCall::begin_recovery(bool keep) {
  if (released_) return false;
  if (!recovering_) {
    recovering_ = true;
    // Moved where possible: a value that nobody else holds is overwritten by the one below it.
    live_ = keep ? kept_ : std::move(kept_);
  }
  return true;
}

std::vector<at::Tensor> StackCall::backward(at::Tensor dy1, at::Tensor dy2, bool keep) {
  if (released_) {
    throw std::runtime_error(
        "stack: this call was differentiated already and its state is freed; use retain_graph to "
        "differentiate it again");
  }
  struct ReleaseOnError {
    StackCall* call;
    ~ReleaseOnError() {
      if (call == nullptr) return;
      if (call->below_) call->below_->release();
      call->release();
    }
  } on_error{this};

  versions_.check();
  if (!keep) versions_.clear();  // it holds on to the outputs
  begin_recovery(keep);
  const auto count = static_cast<std::size_t>(branches());
  deferred_.resize(count);
  waiting_.resize(count);
  lower_ = dy1.defined() ? dy1 : at::zeros_like(dy2);
  upper_ = dy2.defined() ? std::move(dy2) : at::zeros_like(dy1);
  dy1.reset();
  Watchers watchers = observers_->now();
  std::function<void(const BlockGradients&)> on_block;
  if (watchers.any(&StackObserver::on_block_gradients)) {
    on_block = [&watchers](const BlockGradients& block) { watchers.block_gradients(block); };
  }
  gradients_ = std::make_unique<GradientSlots>(slots_, branches(), std::move(on_block));
  below_ = plan_.overlap ? pass_->call(position_ - 1) : nullptr;
  if (below_ && (below_->ready_ > 0 || !below_->begin_recovery(keep))) below_ = nullptr;

  SerialLane this_thread;
  Executor& executor = executor_ ? *executor_ : this_thread;
  const ScheduleOptions schedule{
      .overlap = plan_.overlap && executor.lanes() > 1,
      .lookahead = plan_.lookahead,
      .deferred = plan_.deferred,
      .lanes = std::min(std::max(executor.lanes(), 2), plan_.lanes),
      // On the meta device as on the CPU, for which it stands.
      .rule = device_.is_cpu() || device_.is_meta() ? LaneRule::any : LaneRule::fixed};
  deferring_ = schedule.overlap && schedule.deferred > 0;
  const TaskGraph graph =
      backward_schedule(keep_, schedule, ready_, below_ ? &below_->keep_ : nullptr);
  {
    HooksAside hooks(leaves());
    const bool timed = watchers.any(&StackObserver::on_backward);
    SpanRecorder recorder(&watchers);
    executor.run(
        graph, [&](const Task& task) { run_task(task, keep); },
        timed || watchers.any(&StackObserver::on_task) ? &recorder : nullptr);
    if (timed) watchers.backward(graph, recorder.timeline());
  }
  if (below_ && schedule.overlap) below_->ready_ = std::min(plan_.lookahead, below_->branches());

  check_drift();
  std::vector<at::Tensor> result{std::move(lower_), std::move(upper_)};
  std::vector<at::Tensor> sums = gradients_->take();
  check_missing(sums);
  result.insert(result.end(), sums.begin(), sums.end());
  end_backward(keep);
  on_error.call = nullptr;
  return result;
}

void StackCall::run_task(const Task& task, bool keep) {
  if (task.stack == 1) return below_->recover(task.branch);
  switch (task.kind) {
    case TaskKind::recover:
      return recover(task.branch);
    case TaskKind::gradient:
      return gradient(task.branch, keep);
    case TaskKind::weight_gradient:
      return weight_gradient(task.branch);
  }
}

void StackCall::recover(int k) {
  const auto at = static_cast<std::size_t>(k);
  const BranchKeep& keep = keep_.branches[at];
  const BranchSetting branch = setting(k);
  reads(live_[at + 1]);
  reads(live_[at + 2]);
  const bool skip = keep.tape_only() && branch.branch->skips_output();
  at::Tensor x;
  {
    memory::TagScope tag(memory::Tag::tape);
    x = arithmetic_->leave(live_[at + 1]);
  }
  auto [tape, f] = record_tape(branch, x, tape_extras_, {.output_needed = !skip});
  check_no_unknown_leaf(branch, tape, branch_leaves(k));
  tapes_[at] = std::move(tape);

  memory::TagScope tag(memory::Tag::streams);
  at::Tensor above = std::move(live_[at + 2]);
  // What is higher up was only wanted by branches that have their tape.
  std::for_each(live_.begin() + k + 2, live_.end(), [](at::Tensor& u) { u.reset(); });
  if (!keep.tape_only()) {
    live_[at] = arithmetic_->subtract(std::move(above), f);
    probe_->compare(k, live_[at]);
    if (k == 0 && one_input_) {
      probe_->compare_bottom(arithmetic_->leave(live_[0]), arithmetic_->leave(live_[1]));
    }
  } else if (!skip && above.defined()) {
    probe_->compare(k, arithmetic_->subtract(std::move(above), f));
  }
}

void StackCall::gradient(int k, bool keep) {
  const auto at = static_cast<std::size_t>(k);
  reads(upper_);
  reads(lower_);
  const bool keep_tape = keep && keep_.branches[at].tape;
  TapeGradients found = tape_gradients(tapes_[at], upper_, branch_leaves(k),
                                       deferring_ ? &deferred_[at] : nullptr, keep_tape);
  if (!keep_tape) tapes_[at] = {};
  lower_ = sum(std::move(lower_), std::move(found.input));
  std::swap(upper_, lower_);
  if (!deferred_[at].empty()) {
    waiting_[at] = std::move(found.others);
  } else {
    deliver(k, std::move(found.others));
  }
}

void StackCall::weight_gradient(int k) {
  const auto at = static_cast<std::size_t>(k);
  if (deferred_[at].empty()) return;
  std::vector<at::Tensor> all = std::move(waiting_[at]);
  for (auto& [parameter, gradient] : deferred_[at].run()) {
    const auto& ids = branch_slots_[at];
    const auto id = std::find_if(ids.begin(), ids.end(), [&](int candidate) {
      return slots_[static_cast<std::size_t>(candidate)].leaf.is_same(parameter);
    });
    if (id == ids.end()) continue;
    at::Tensor& mine = all[static_cast<std::size_t>(id - ids.begin())];
    mine = sum(std::move(mine), std::move(gradient));
  }
  deliver(k, std::move(all));
}

void StackCall::deliver(int k, std::vector<at::Tensor> gradients) {
  gradients_->deliver(k, branch_slots_[static_cast<std::size_t>(k)], std::move(gradients));
}

void StackCall::check_drift() {
  drift_ = probe_->report();
  const auto [k, deviation] = probe_->first_beyond(drift_limit());
  if (k < 0) return;
  throw std::runtime_error(
      setting(k).where + ": its recomputation differs from its forward pass by " +
      std::to_string(deviation) + " of the stream's largest value (limit " +
      std::to_string(drift_limit()) +
      "). Either the branch does not compute the same again (randomness must come from "
      "pareprop::dropout or drop_path, and no state may change), or rounding errors grow: use "
      "exact "
      "streams (--exact; in C++ StackOptions::arithmetic), which have none, or mode "
      "checkpoint; in C++ also Policy::anchor or a larger StackOptions::drift_limit");
}

void StackCall::check_missing(const std::vector<at::Tensor>& gradients) const {
  if (options_.allow_unused_parameters) return;
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    if (!slots_[id].parameter || gradients[id].defined()) continue;
    throw std::runtime_error(
        slots_[id].name +
        " got no gradient: the branch does not use it, or cut its graph. Freeze "
        "it (requires_grad false) or set allow_unused_parameters");
  }
}

void StackCall::end_backward(bool keep) {
  // An earlier pass that did not keep may have begun to use up what this one should.
  if (!keep || kept_.empty()) return release();
  recovering_ = false;
  ready_ = 0;
  live_.clear();
  probe_->forget_comparisons();
  for (std::size_t k = 0; k < tapes_.size(); ++k) {
    if (!keep_.branches[k].tape) tapes_[k] = {};
  }
  gradients_.reset();
  below_.reset();
}

}  // namespace pareprop
