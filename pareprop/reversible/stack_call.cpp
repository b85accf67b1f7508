#include "pareprop/reversible/stack_call.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "pareprop/graph/schedule.h"
#include "pareprop/memory/meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/pass_times.h"

namespace pareprop {
namespace {

std::string where(int k) {
  return "block " + std::to_string(k / 2) + ", branch " + (k % 2 == 0 ? "F" : "G");
}

}  // namespace

StackCall::StackCall(Setup setup, std::shared_ptr<Pass> pass, std::vector<at::Tensor> extras)
    : branches_(std::move(setup.branches)),
      plan_(std::move(setup.plan)),
      options_(setup.options),
      observers_(std::move(setup.observers)),
      pass_(std::move(pass)),
      extras_(std::move(extras)) {
  for (const at::Tensor& extra : extras_) {
    const bool differentiable = extra.defined() && extra.requires_grad();
    tape_extras_.push_back(differentiable ? extra.detach().requires_grad_(true) : extra);
  }
  collect_leaves();
}

BranchSetting StackCall::setting(int k) const {
  return {.branch = &(*branches_)[static_cast<std::size_t>(k)],
          .where = where(k),
          .random_key = pass_->random_key(
              {static_cast<std::uint64_t>(position_), static_cast<std::uint64_t>(k)}),
          .autocast = autocast_};
}

void StackCall::collect_leaves() {
  branch_slots_.resize(branches_->size());
  std::unordered_map<const c10::TensorImpl*, int> known;
  auto use = [&](int k, const at::Tensor& leaf, const std::string& name, bool parameter) {
    const auto [entry, added] =
        known.emplace(leaf.unsafeGetTensorImpl(), static_cast<int>(slots_.size()));
    if (added) slots_.push_back({leaf, name, parameter, {}});
    auto& mine = branch_slots_[static_cast<std::size_t>(k)];
    if (std::find(mine.begin(), mine.end(), entry->second) != mine.end()) return;
    mine.push_back(entry->second);
    auto& users = slots_[static_cast<std::size_t>(entry->second)].users;
    users.insert(users.begin(), k);
  };
  for (int k = 0; k < branches(); ++k) {
    for (std::size_t i = 0; i < tape_extras_.size(); ++i) {
      if (!tape_extras_[i].defined() || !tape_extras_[i].requires_grad()) continue;
      use(k, tape_extras_[i], "extra argument " + std::to_string(i), false);
    }
  }
  for (int k = 0; k < branches(); ++k) {
    for (const auto& [name, tensor] : (*branches_)[static_cast<std::size_t>(k)].parameters()) {
      if (!tensor.requires_grad()) continue;
      const std::string full = where(k) + ": parameter '" + name + "'";
      if (!tensor.is_leaf()) {
        throw std::invalid_argument(full +
                                    " is not a leaf of the autograd graph; pass a tensor that is "
                                    "computed from others as an extra argument of the call");
      }
      use(k, tensor, full, true);
    }
  }
}

std::vector<at::Tensor> StackCall::branch_leaves(int k) const {
  std::vector<at::Tensor> result;
  for (int id : branch_slots_[static_cast<std::size_t>(k)]) {
    result.push_back(slots_[static_cast<std::size_t>(id)].leaf);
  }
  return result;
}

std::vector<at::Tensor> StackCall::own_leaves(int k) const {
  return on_streams() ? branch_leaves(k) : std::vector<at::Tensor>{};
}

std::vector<at::Tensor> StackCall::leaves() const {
  std::vector<at::Tensor> result;
  for (const at::Tensor& extra : extras_) {
    if (branches() > 0 && extra.defined() && extra.requires_grad()) result.push_back(extra);
  }
  for (const auto& slot : slots_) {
    if (slot.parameter) result.push_back(slot.leaf);
  }
  return result;
}

std::pair<at::Tensor, at::Tensor> StackCall::forward(const at::Tensor& x1, const at::Tensor& x2,
                                                     bool for_backward) {
  c10::AutoGradMode no_graph(false);
  const int count = branches();
  position_ = pass_->enter(shared_from_this());
  arithmetic_.emplace(options_.arithmetic, x1.scalar_type(), options_.fraction_bits);
  autocast_ = AutocastState::of_this_thread(x1.device().type(), options_.precision);
  one_input_ = x1.is_same(x2);
  device_ = x1.device();
  checks_ =
      reads_wait(device_) && pass_->checks() ? pass_->checks() : std::make_shared<DeferredChecks>();
  RangeProbe range(*arithmetic_, reads_wait(device_));
  if (for_backward) {
    keep_ = keep_plan(plan_.policies, {.tail = plan_.kept_tail(on_streams())});
    probe_ = std::make_unique<DriftProbe>(count, reads_wait(device_));
  } else {
    keep_.branches.resize(static_cast<std::size_t>(count));
  }

  std::vector<at::Tensor> u(static_cast<std::size_t>(count) + 2);
  kept_.resize(u.size());
  tapes_.resize(static_cast<std::size_t>(count));
  {
    memory::TagScope tag(memory::Tag::streams);
    range.input("x1", x1);
    range.input("x2", x2);
  }

  Watchers watchers = observers_->now();
  std::shared_ptr<PassTimes> times;
  if (watchers.any(&StackObserver::on_forward) || watchers.any(&StackObserver::on_task)) {
    times = std::make_shared<PassTimes>(device_, &watchers);
  }
  const auto run = [&](int k, int lane) {
    if (k == 0) {
      memory::TagScope tag(memory::Tag::streams);
      u[0] = arithmetic_->enter(x1.detach().contiguous());
      u[1] = one_input_ ? u[0] : arithmetic_->enter(x2.detach().contiguous());
    }
    if (times) times->on_begin(k, lane);
    run_forward(k, u, range, for_backward);
    if (times) times->on_end(k, lane);
  };
  if (on_streams()) {
    executor_->run(forward_schedule(count, executor_->lanes(), ahead()),
                   [&](const Task& task) { run(task.branch, task.lane); });
  } else {
    for (int k = 0; k < count; ++k) run(k, 0);
  }
  if (times) {
    when_done([times, observers = observers_] { observers->now().forward(times->timeline()); });
  }

  range.defer_to(*checks_);
  const auto top = static_cast<std::size_t>(count);
  std::pair outputs{arithmetic_->leave(u[top]), arithmetic_->leave(u[top + 1])};
  if (for_backward) {
    // Detached, so that the node and its own outputs do not keep each other alive.
    if (keep_.wants_y1) kept_[top] = u[top].detach();
    if (keep_.wants_y2) kept_[top + 1] = u[top + 1].detach();
    remember_versions(x1, x2);
  } else {
    release();
    if (!defers_checks()) checks_->run();
  }
  return outputs;
}

void StackCall::when_done(std::function<void()> tell) {
  if (!has_streams(device_)) return tell();
  checks_->add({}, [tell = std::move(tell)](c10::ArrayRef<double>) {
    tell();
    return true;
  });
}

void StackCall::run_forward(int k, std::vector<at::Tensor>& u, RangeProbe& range,
                            bool for_backward) {
  const auto at = static_cast<std::size_t>(k);
  const BranchKeep& keep = keep_.branches[at];
  const BranchSetting branch = setting(k);
  const at::Tensor x = arithmetic_->leave(u[at + 1]);
  at::Tensor f;
  if (for_backward && keep.tape) {
    std::tie(tapes_[at], f) =
        record_tape(branch, x, tape_extras_, {.lean = keep.lean, .own_leaves = own_leaves(k)});
    check_no_unknown_leaf(branch, tapes_[at], branch_leaves(k));
  } else {
    f = run_branch(branch, x, extras_);
  }
  range.addition(branch.where, u[at], f);
  if (for_backward) {
    if (keep.value) kept_[at] = u[at];
    // A meta tensor has no values that could drift.
    if (keep.needs_recover() && !device_.is_meta()) probe_->remember(k, u[at]);
  }
  memory::TagScope tag(memory::Tag::streams);
  u[at + 2] = arithmetic_->add(std::move(u[at]), f);
}

std::pair<at::Tensor, at::Tensor> StackCall::forward_with_autograd(const at::Tensor& x1,
                                                                   const at::Tensor& x2) {
  if (options_.arithmetic == Arithmetic::exact) {
    throw std::invalid_argument(
        "stack: exact (integer) streams have no autograd graph; compare with mode stored instead");
  }
  position_ = pass_->enter(shared_from_this());
  autocast_ = AutocastState::of_this_thread(x1.device().type(), options_.precision);
  at::Tensor lower = x1, upper = x2;
  for (int k = 0; k < branches(); ++k) {
    const BranchSetting branch = setting(k);
    RandomStream random(branch.random_key);
    RandomScope random_scope(random);
    AutocastScope autocast_scope(x1.device().type(), autocast_);
    lower = lower + (*branch.branch)(upper, {{extras_, branch.where}}).to(lower.scalar_type());
    std::swap(lower, upper);
  }
  return {lower, upper};
}

std::pair<at::Tensor, at::Tensor> StackCall::inverse(const at::Tensor& y1, const at::Tensor& y2) {
  c10::AutoGradMode no_graph(false);
  position_ = pass_->enter(shared_from_this());
  arithmetic_.emplace(options_.arithmetic, y1.scalar_type(), options_.fraction_bits);
  autocast_ = AutocastState::of_this_thread(y1.device().type(), options_.precision);
  // u[k + 1] and u[k + 2] of branch k.
  at::Tensor lower = arithmetic_->enter(y1.detach().contiguous());
  at::Tensor upper = arithmetic_->enter(y2.detach().contiguous());
  for (int k = branches() - 1; k >= 0; --k) {
    const at::Tensor f = run_branch(setting(k), arithmetic_->leave(lower), extras_);
    memory::TagScope tag(memory::Tag::streams);
    at::Tensor below = arithmetic_->subtract(std::move(upper), f);
    upper = std::exchange(lower, std::move(below));
  }
  return {arithmetic_->leave(lower), arithmetic_->leave(upper)};
}

void StackCall::remember_versions(const at::Tensor& x1, const at::Tensor& x2) {
  for (int k = 0; k < branches(); ++k) {
    for (const auto& [name, tensor] : (*branches_)[static_cast<std::size_t>(k)].parameters()) {
      versions_.add(tensor, where(k) + ": parameter '" + name + "'");
    }
  }
  for (std::size_t i = 0; i < extras_.size(); ++i) {
    versions_.add(extras_[i], "stack: extra argument " + std::to_string(i));
  }
  if (arithmetic_->exact()) return;
  const auto top = static_cast<std::size_t>(branches());
  if (kept_[0].defined()) versions_.add(x1, "stack: input x1");
  if (kept_[1].defined()) versions_.add(x2, "stack: input x2");
  versions_.add(kept_[top], "stack: output y1");
  versions_.add(kept_[top + 1], "stack: output y2");
}

void StackCall::release() {
  released_ = true;
  kept_.clear();
  tapes_.clear();
  live_.clear();
  deferred_.clear();
  borrowed_.clear();
  waiting_.clear();
  versions_.clear();
  upper_.reset();
  lower_.reset();
  gradients_.reset();
  probe_.reset();
  below_.reset();
}

}  // namespace pareprop
