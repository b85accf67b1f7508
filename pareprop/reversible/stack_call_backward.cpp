#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "pareprop/graph/schedule.h"
#include "pareprop/lanes/serial_lane.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/gradient_sums.h"
#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/hooks_aside.h"
#include "pareprop/reversible/pass_times.h"
#include "pareprop/reversible/stack_call.h"

namespace pareprop {
namespace {

// For the ops of one task.
class SumsOfBranch final : public GradientSums {
 public:
  explicit SumsOfBranch(std::function<at::Tensor(const at::Tensor&)> find)
      : find_(std::move(find)), scope_(this) {}
  at::Tensor sum_of(const at::Tensor& parameter) override { return find_(parameter); }

 private:
  const std::function<at::Tensor(const at::Tensor&)> find_;
  const GradientSumsScope scope_;
};

}  // namespace

template <typename Used>
void StackCall::done_with(Used used, int owner) {
  if constexpr (std::is_same_v<Used, at::Tensor>) {
    if (!used.defined()) return;
  }
  if (on_streams()) executor_->hand_back(std::make_shared<const Used>(std::move(used)), owner);
}

// `b` is of this task.
at::Tensor StackCall::sum(at::Tensor a, at::Tensor b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (sole_owner(a)) return a.add_(b);
  at::Tensor result = sole_owner(b) ? b.add_(a) : a.add(b);
  done_with(std::move(a));
  return result;
}

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

std::vector<at::Tensor> StackCall::backward(std::vector<at::Tensor> dy, bool keep) {
  if (released_) {
    throw std::runtime_error(
        "stack: backward already ran through this call and freed its state; use retain_graph to "
        "run backward again");
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
  borrowed_.resize(count);
  waiting_.resize(count);
  if (reversible()) {
    lower_ = dy[0].defined() ? dy[0] : at::zeros_like(dy[1]);
    upper_ = dy[1].defined() ? dy[1] : at::zeros_like(dy[0]);
  } else {
    upper_ = dy[0];
  }
  dy.clear();
  Watchers watchers = observers_->now();
  std::function<void(const BlockGradients&)> on_block;
  if (watchers.any(&StackObserver::on_block_gradients)) {
    on_block = [&watchers](const BlockGradients& block) { watchers.block_gradients(block); };
  }
  std::function<void(at::Tensor)> done;
  if (on_streams()) done = [this](at::Tensor used) { done_with(std::move(used)); };
  taken_.assign(slots_.size(), false);
  summed_.assign(slots_.size(), false);
  gradients_ = std::make_unique<GradientSlots>(slots_, branches(), std::move(on_block), done);
  below_ = plan_.overlap ? pass_->call(position_ - 1) : nullptr;
  if (below_ && !below_->plan_.overlap) below_ = nullptr;
  // Its tapes must be on the streams that will run their gradients.
  if (below_ && on_streams() && (below_->executor_ != executor_ || below_->ahead() != ahead())) {
    below_ = nullptr;
  }
  if (below_ && (below_->ready_ > 0 || !below_->begin_recovery(keep))) below_ = nullptr;

  SerialLane this_thread;
  Executor& executor = executor_ ? *executor_ : this_thread;
  const ScheduleOptions schedule{
      .overlap = plan_.overlap && executor.lanes() > 1,
      .lookahead = ahead(),
      .deferred = plan_.deferred,
      .lanes = std::clamp(executor.lanes(), 2, on_streams() ? 3 : plan_.lanes),
      .updates = pass_->taker() != nullptr,
      .rule = on_streams() ? LaneRule::fixed : LaneRule::any};
  deferring_ = schedule.overlap && schedule.deferred > 0;
  const TaskGraph graph =
      backward_schedule(keep_, schedule, ready_, below_ ? &below_->keep_ : nullptr);
  {
    HooksAside hooks(leaves());
    std::shared_ptr<PassTimes> times;
    if (watchers.any(&StackObserver::on_backward) || watchers.any(&StackObserver::on_task)) {
      times = std::make_shared<PassTimes>(device_, &watchers);
    }
    executor.run(
        graph, [&](const Task& task) { run_task(task, keep); }, times.get());
    if (times) {
      when_done([times, graph, observers = observers_] {
        observers->now().backward(graph, times->timeline());
      });
    }
  }
  if (below_ && schedule.overlap) below_->ready_ = std::min(ahead(), below_->keep_.steps());

  check_drift();
  std::vector<at::Tensor> result;
  if (reversible()) result.push_back(std::move(lower_));
  result.push_back(std::move(upper_));
  // Of values inside of the stack: nobody asked for them.
  if (keep_.first > 0) std::fill(result.begin(), result.end(), at::Tensor());
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
    case TaskKind::update:
      return update(task.block());
  }
}

void StackCall::recover(int k) {
  const auto at = static_cast<std::size_t>(k);
  const BranchSetting branch = setting(k);
  const bool skip = keep_.tape_only(k) && branch.branch->skips_output();
  at::Tensor x;
  {
    memory::TagScope tag(memory::Tag::tape);
    x = arithmetic_->leave(live_[input(k)]);
  }
  auto [tape, f] =
      record_tape(branch, x, tape_extras_, {.output_needed = !skip, .own_leaves = own_leaves(k)});
  check_no_unknown_leaf(branch, tape, branch_leaves(k));
  tapes_[at] = std::move(tape);
  memory::TagScope tag(memory::Tag::streams);
  reversible() ? join_recovered(k, f, skip) : run_again(k, f, skip);
}

void StackCall::join_recovered(int k, const at::Tensor& f, bool output_skipped) {
  const auto at = static_cast<std::size_t>(k);
  at::Tensor above = std::move(live_[at + 2]);
  // What is higher up was only wanted by branches that have their tape.
  std::for_each(live_.begin() + k + 3, live_.end(),
                [this](at::Tensor& u) { done_with(std::exchange(u, at::Tensor())); });
  if (!keep_.tape_only(k)) {
    live_[at] = arithmetic_->subtract(std::move(above), f);
    probe_->compare(k, live_[at]);
    if (k == 0 && one_input_) {
      probe_->compare_bottom(arithmetic_->leave(live_[0]), arithmetic_->leave(live_[1]));
    }
  } else if (!output_skipped && above.defined()) {
    above = arithmetic_->subtract(std::move(above), f);
    probe_->compare(k, above);
  }
  done_with(std::move(above));
}

// In one stream the value above is made again from the one that the branch read.
void StackCall::run_again(int k, const at::Tensor& f, bool output_skipped) {
  // The tape has it too, until its gradient is done.
  const at::Tensor read = std::exchange(live_[input(k)], at::Tensor());
  if (!output_skipped) probe_->compare(k, f);
  if (!keep_.tape_only(k)) live_[output(k)] = joined(read, f, read.scalar_type());
}

void StackCall::gradient(int k, bool keep) {
  const auto at = static_cast<std::size_t>(k);
  const bool keep_tape = keep && keep_.branches[at].tape;
  const SumsOfBranch sums([this, k](const at::Tensor& parameter) { return sum_of(k, parameter); });
  TapeGradients found = tape_gradients(tapes_[at], upper_, branch_leaves(k),
                                       deferring_ ? &deferred_[at] : nullptr, keep_tape);
  at::Tensor input = tapes_[at].input;
  // All else that it holds was made on this lane.
  if (!keep_tape) tapes_[at] = {};
  if (delivers_later(k) && on_streams()) {
    borrowed_[at].push_back(std::move(input));
    if (!sole_owner(upper_)) borrowed_[at].push_back(upper_);
  } else {
    done_with(std::move(input));
  }
  if (reversible()) {
    lower_ = sum(std::move(lower_), std::move(found.input));
    std::swap(upper_, lower_);
  } else if (coupling_ == Coupling::residual) {
    upper_ = sum(std::move(upper_), std::move(found.input));
  } else {
    if (!found.input.defined()) found.input = at::zeros_like(upper_);
    done_with(std::exchange(upper_, std::move(found.input)));
  }
  if (delivers_later(k)) {
    waiting_[at] = std::move(found.others);
  } else {
    deliver(k, std::move(found.others));
  }
}

void StackCall::weight_gradient(int k) {
  const auto at = static_cast<std::size_t>(k);
  if (!delivers_later(k)) return;
  std::vector<at::Tensor> all = std::move(waiting_[at]);
  if (on_streams()) {  // what they hold is let go on the way
    done_with(deferred_[at], fixed_lane(k, ahead()));
    done_with(std::move(borrowed_[at]));
  }
  const SumsOfBranch sums([this, k](const at::Tensor& parameter) { return sum_of(k, parameter); });
  for (auto& [parameter, gradient] : deferred_[at].run()) {
    const std::optional<std::size_t> place = place_of(k, parameter);
    if (!place) continue;
    at::Tensor& mine = all[*place];
    mine = sum(std::move(mine), std::move(gradient));
  }
  deliver(k, std::move(all));
}

std::optional<std::size_t> StackCall::place_of(int k, const at::Tensor& parameter) const {
  const auto& ids = branch_slots_[static_cast<std::size_t>(k)];
  const auto id = std::find_if(ids.begin(), ids.end(), [&](int candidate) {
    return slots_[static_cast<std::size_t>(candidate)].leaf.is_same(parameter);
  });
  if (id == ids.end()) return std::nullopt;
  return static_cast<std::size_t>(id - ids.begin());
}

// What several branches use is added up in their order, and what a branch uses several times by
// whoever computes its gradient: in both cases a sum is given at most once.
at::Tensor StackCall::sum_of(int k, const at::Tensor& parameter) {
  GradientTaker* taker = pass_->taker().get();
  if (taker == nullptr || !taker->takes(parameter)) return {};
  const std::optional<std::size_t> place = place_of(k, parameter);
  if (!place) return {};
  const auto id = static_cast<std::size_t>(branch_slots_[static_cast<std::size_t>(k)][*place]);
  if (slots_[id].users.size() != 1 || summed_[id]) return {};
  summed_[id] = true;
  return taker->sum_of(parameter);
}

void StackCall::update(int block) {
  GradientTaker& taker = *pass_->taker();
  BlockGradients taken{.block = block, .parameters = {}, .gradients = {}};
  for (const std::size_t id : gradients_->whole_with(block)) {
    if (!taker.takes(slots_[id].leaf)) continue;
    taken_[id] = true;
    at::Tensor gradient = gradients_->take(id);
    check_gradient(id, gradient);
    if (!gradient.defined()) continue;
    taken.parameters.push_back(slots_[id].leaf);
    taken.gradients.push_back(std::move(gradient));
  }
  taker.take(taken);
  done_with(std::move(taken.gradients));
}

// On streams all of them: one order of tasks then is the order of all that is done with gradients.
bool StackCall::delivers_later(int k) const {
  return deferring_ && (on_streams() || !deferred_[static_cast<std::size_t>(k)].empty());
}

void StackCall::deliver(int k, std::vector<at::Tensor> gradients) {
  gradients_->deliver(k, branch_slots_[static_cast<std::size_t>(k)], std::move(gradients));
}

void StackCall::check_drift() {
  DriftFindings found = probe_->findings();
  std::vector<std::string> where;
  for (const int k : found.branches) where.push_back(setting(k).where);
  std::vector<at::Tensor> numbers = found.numbers;
  // It must not hold the call, which holds the checks.
  checks_->add(std::move(numbers), [found = std::move(found), where = std::move(where),
                                    limit = drift_limit(), report = report_](auto values) {
    const auto [k, deviation] = found.first_beyond(values, limit);
    if (k < 0) {
      if (report) report(found.report(values));
      return true;
    }
    const auto branch = std::find(found.branches.begin(), found.branches.end(), k);
    throw std::runtime_error(
        where[static_cast<std::size_t>(branch - found.branches.begin())] +
        ": the recomputation differs from the forward pass by " + std::to_string(deviation) +
        " of the stream's largest value (limit " + std::to_string(limit) +
        "). Either the branch does not compute the same result again (randomness must come from "
        "pareprop::dropout or drop_path, in Python pareprop.nn.Dropout or DropPath, and no state "
        "may change), or rounding errors grow: use exact streams (in the program --exact, in C++ "
        "StackOptions::arithmetic, in Python exact=True), which have no rounding errors, or mode "
        "checkpoint; also policy anchor or a larger StackOptions::drift_limit");
  });
  if (!defers_checks()) checks_->run();
}

void StackCall::check_missing(const std::vector<at::Tensor>& gradients) const {
  for (std::size_t id = 0; id < slots_.size(); ++id) {
    if (!taken_[id]) check_gradient(id, gradients[id]);
  }
}

void StackCall::check_gradient(std::size_t slot, const at::Tensor& gradient) const {
  if (!slots_[slot].parameter || gradient.defined() || options_.allow_unused_parameters) return;
  throw std::runtime_error(
      slots_[slot].name +
      " got no gradient: the branch does not use it, or detaches it. Freeze the parameter "
      "(requires_grad false) or set allow_unused_parameters");
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
