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
      coupling_(setup.coupling),
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

// What lies below has nothing to train, and nobody wants the gradient of the streams there.
int StackCall::first_block(const std::vector<at::Tensor>& x) const {
  const auto wants = [](const at::Tensor& t) { return t.requires_grad(); };
  if (std::any_of(x.begin(), x.end(), wants)) return 0;
  const auto trains = [](const std::vector<int>& slots) { return !slots.empty(); };
  const auto lowest = std::find_if(branch_slots_.begin(), branch_slots_.end(), trains);
  return static_cast<int>(lowest - branch_slots_.begin()) / 2;
}

std::vector<at::Tensor> StackCall::forward(const std::vector<at::Tensor>& x, bool for_backward) {
  c10::AutoGradMode no_graph(false);
  const int count = branches();
  position_ = pass_->enter(shared_from_this());
  const Arithmetic arithmetic = reversible() ? options_.arithmetic : Arithmetic::floating;
  arithmetic_.emplace(arithmetic, x[0].scalar_type(), options_.fraction_bits);
  device_ = x[0].device();
  autocast_ = AutocastState::of_this_thread(device_.type(), options_.precision);
  one_input_ = reversible() && x[0].is_same(x[1]);
  checks_ =
      reads_wait(device_) && pass_->checks() ? pass_->checks() : std::make_shared<DeferredChecks>();
  RangeProbe range(*arithmetic_, reads_wait(device_));
  if (for_backward) {
    keep_ = keep_plan(plan_.policies, {.tail = plan_.kept_tail(on_streams(), coupling_),
                                       .coupling = coupling_,
                                       .first_block = first_block(x)});
    probe_ = std::make_unique<DriftProbe>(count, reads_wait(device_));
  } else {
    keep_.branches.resize(static_cast<std::size_t>(count));
  }

  std::vector<at::Tensor> u(static_cast<std::size_t>(count) + x.size());
  kept_.resize(u.size());
  tapes_.resize(static_cast<std::size_t>(count));
  {
    memory::TagScope tag(memory::Tag::streams);
    range.input("x1", x.front());
    if (reversible()) range.input("x2", x.back());
  }

  Watchers watchers = observers_->now();
  std::shared_ptr<PassTimes> times;
  if (watchers.any(&StackObserver::on_forward) || watchers.any(&StackObserver::on_task)) {
    times = std::make_shared<PassTimes>(device_, &watchers);
  }
  const auto run = [&](int k, int lane) {
    if (k == 0) {
      memory::TagScope tag(memory::Tag::streams);
      u[0] = arithmetic_->enter(x[0].detach().contiguous());
      if (reversible()) {
        u[1] = one_input_ ? u[0] : arithmetic_->enter(x[1].detach().contiguous());
      }
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
  std::vector<at::Tensor> outputs;
  for (std::size_t at = top; at < u.size(); ++at) outputs.push_back(arithmetic_->leave(u[at]));
  if (for_backward) {
    // Detached, so that the node and its own outputs do not keep each other alive.
    if (keep_.wants_y1) kept_[top] = u[top].detach();
    if (keep_.wants_y2) kept_[top + 1] = u[top + 1].detach();
    remember_versions(x);
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
  at::Tensor x = arithmetic_->leave(u[input(k)]);
  at::Tensor f;
  if (for_backward && keep.tape) {
    std::tie(tapes_[at], f) =
        record_tape(branch, x, tape_extras_, {.lean = keep.lean, .own_leaves = own_leaves(k)});
    check_no_unknown_leaf(branch, tapes_[at], branch_leaves(k));
  } else {
    f = run_branch(branch, x, extras_);
  }
  if (reversible()) range.addition(branch.where, u[at], f);
  if (for_backward) {
    if (keep.value) kept_[at] = u[at];
    // A meta tensor has no values that could drift.
    if (k >= keep_.first && keep.needs_recover() && !device_.is_meta()) {
      probe_->remember(k, reversible() ? u[at] : f);
    }
  }
  memory::TagScope tag(memory::Tag::streams);
  const auto dtype = x.scalar_type();
  x.reset();
  u[output(k)] = joined(std::move(u[at]), f, dtype);
}

// The value that branch k makes, of the one that it adds to: u[k], or its input v[k].
at::Tensor StackCall::joined(at::Tensor u, const at::Tensor& f, at::ScalarType dtype) const {
  return coupling_ == Coupling::sequential ? f.to(dtype) : arithmetic_->add(std::move(u), f);
}

std::vector<at::Tensor> StackCall::forward_with_autograd(const std::vector<at::Tensor>& x) {
  if (reversible() && options_.arithmetic == Arithmetic::exact) {
    throw std::invalid_argument(
        "stack: exact (integer) streams have no autograd graph; compare with mode stored instead");
  }
  position_ = pass_->enter(shared_from_this());
  const auto device = x[0].device().type();
  autocast_ = AutocastState::of_this_thread(device, options_.precision);
  std::vector<at::Tensor> u = x;
  for (int k = 0; k < branches(); ++k) {
    const BranchSetting branch = setting(k);
    RandomStream random(branch.random_key);
    RandomScope random_scope(random);
    AutocastScope autocast_scope(device, autocast_);
    at::Tensor& lower = u.front();
    const at::Tensor f = (*branch.branch)(u.back(), {{extras_, branch.where}});
    lower = coupling_ == Coupling::sequential ? f.to(lower.scalar_type())
                                              : lower + f.to(lower.scalar_type());
    if (reversible()) std::swap(u[0], u[1]);
  }
  return u;
}

std::pair<at::Tensor, at::Tensor> StackCall::inverse(const at::Tensor& y1, const at::Tensor& y2) {
  c10::AutoGradMode no_graph(false);
  position_ = pass_->enter(shared_from_this());
  arithmetic_.emplace(options_.arithmetic, y1.scalar_type(), options_.fraction_bits);
  device_ = y1.device();
  autocast_ = AutocastState::of_this_thread(device_.type(), options_.precision);
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

void StackCall::remember_versions(const std::vector<at::Tensor>& x) {
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
  if (kept_[0].defined()) versions_.add(x.front(), "stack: input x1");
  if (!reversible()) return;
  if (kept_[1].defined()) versions_.add(x.back(), "stack: input x2");
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
