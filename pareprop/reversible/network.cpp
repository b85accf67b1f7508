#include "pareprop/reversible/network.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop {
namespace {

// Whether its hooks are those of Python: torch would drop them for the first one of C++.
bool has_foreign_hooks(const at::Tensor& weight) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(weight);
  return meta != nullptr && !meta->hooks_.empty() && meta->cpp_hooks_list_ == nullptr;
}

}  // namespace

std::vector<int> Network::depths() const {
  std::vector<int> depths;
  for (const Stack& stack : stacks()) depths.push_back(stack->depth());
  return depths;
}

Coupling Network::coupling() const {
  return stacks().empty() ? Coupling::reversible : stacks().front()->coupling();
}

bool Network::plain() const { return stacks().empty() || !is_reversible(coupling()); }

std::vector<Mode> Network::modes() const {
  std::vector<Mode> modes = plain() ? plain_modes() : preset_modes();
  std::erase(modes, Mode::automatic);
  return modes;
}

StepPlan Network::recomputing_plan(bool overlap) const {
  return pareprop::recomputing_plan(overlap, depths(), coupling());
}

void Network::check_step_plan(const StepPlan& plan) const {
  const std::vector<int> parts = depths();
  if (plan.stacks.size() != parts.size()) {
    throw std::invalid_argument("step plan: expected a plan for each of " +
                                std::to_string(parts.size()) + " stacks, got " +
                                std::to_string(plan.stacks.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_plan(plan.stacks[i], parts[i], stacks()[i]->coupling());
  }
}

void Network::run_checked(const std::shared_ptr<Pass>& pass,
                          const std::function<void(const std::shared_ptr<Pass>&)>& step) const {
  const std::vector<at::Tensor> all = weights();
  if (pass->checks() || all.empty() || !reads_wait(all.front().device())) return step(pass);
  const auto checks = std::make_shared<DeferredChecks>();
  step(std::make_shared<Pass>(pass->seed(), pass->step(), checks, pass->taker(),
                              pass->backward_passes(), pass->part()));
  checks->run();
}

StepPlan Network::plan() const {
  StepPlan plan{.recompute_between = recompute_between_};
  for (const Stack& stack : stacks()) plan.stacks.push_back(stack->plan());
  return plan;
}

void Network::set_plan(const StepPlan& plan) {
  check_step_plan(plan);
  share_executors();
  recompute_between_ = plan.recompute_between;
  for (std::size_t i = 0; i < stacks().size(); ++i) {
    Stack stack = stacks()[i];
    stack->set_plan(plan.stacks[i]);
  }
}

const StackOptions& Network::options() const {
  return stacks().empty() ? options_ : stacks().front()->options();
}

void Network::set_options(const StackOptions& options) {
  options_ = options;
  for (Stack stack : stacks()) stack->set_options(options);
}

void Network::set_numerics(Precision precision, Arithmetic arithmetic) {
  const auto change = [&](StackOptions options) {
    options.precision = precision;
    options.arithmetic = arithmetic;
    return options;
  };
  options_ = change(options_);
  for (Stack stack : stacks()) stack->set_options(change(stack->options()));
}

std::vector<at::Tensor> Network::block_weights() const {
  std::unordered_map<const c10::TensorImpl*, int> users;
  for (const Stack& stack : stacks()) {
    for (const at::Tensor& weight : stack->weights()) ++users[weight.unsafeGetTensorImpl()];
  }
  std::vector<at::Tensor> own;
  for (const at::Tensor& weight : weights()) {
    const auto found = users.find(weight.unsafeGetTensorImpl());
    if (found != users.end() && found->second == 1) own.push_back(weight);
  }
  return own;
}

void Network::set_executor(std::shared_ptr<Executor> executor) {
  executor_ = std::move(executor);
  executors_ = nullptr;
  share_executors();
}

void Network::share_executors() {
  if (executors_) return;
  executors_ = std::make_shared<Executors>(executor_);
  for (Stack stack : stacks()) stack->set_executors(executors_);
}

void Network::set_reference(bool reference) {
  for (Stack stack : stacks()) stack->set_reference(reference);
}

DriftReport Network::drift() const {
  DriftReport worst;
  for (const Stack& stack : stacks()) {
    const DriftReport own = stack->drift();
    if (worst.worst_branch < 0 || !(own.worst <= worst.worst)) worst = own;
  }
  return worst;
}

TaggedGradients::TaggedGradients(const std::vector<at::Tensor>& weights) {
  for (const at::Tensor& weight : weights) {
    if (!weight.requires_grad() || has_foreign_hooks(weight)) continue;
    const unsigned hook = weight.register_hook([](const at::Tensor& gradient) {
      // A gradient that was taken in the middle of the pass does not arrive.
      if (!gradient.defined()) return;
      memory::retag(gradient.storage().data_ptr(), memory::Tag::gradients);
    });
    hooks_.emplace_back(weight, hook);
  }
}

TaggedGradients::~TaggedGradients() {
  for (const auto& [weight, hook] : hooks_) weight.remove_hook(hook);
}

StackNetwork::StackNetwork(std::vector<Stack> stacks, std::vector<at::Tensor> weights, Step step)
    : stacks_(std::move(stacks)),
      weights_(std::move(weights)),
      step_(std::move(step)),
      tagged_(weights_) {
  if (!step_) throw std::invalid_argument("stack network: expected a function that runs one step");
}

namespace {

bool have_gradients(const std::vector<at::Tensor>& weights) {
  return std::any_of(weights.begin(), weights.end(),
                     [](const at::Tensor& weight) { return weight.grad().defined(); });
}

// The gradients of weights as they are now, to be compared with those after a step. Keeps none of
// them alive: a step may drop them.
class GradientsBefore {
 public:
  explicit GradientsBefore(const std::vector<at::Tensor>& weights) {
    for (const at::Tensor& weight : weights) before_.emplace_back(weight);
  }

  bool changed() const {
    return std::any_of(before_.begin(), before_.end(),
                       [](const One& one) { return one.changed(); });
  }

 private:
  struct One {
    explicit One(const at::Tensor& of)
        : weight(of),
          gradient(of.grad().getIntrusivePtr()),
          version(of.grad().defined() ? of.grad()._version() : 0) {}

    bool changed() const {
      const at::Tensor& now = weight.grad();
      if (!now.defined()) return false;
      return now.unsafeGetTensorImpl() != gradient._unsafe_get_target() ||
             now._version() != version;
    }

    at::Tensor weight;
    // Its address is not used again while this lives.
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> gradient;
    std::int64_t version;
  };

  std::vector<One> before_;
};

}  // namespace

void StackNetwork::step(std::int64_t samples, const std::shared_ptr<Pass>& pass) {
  const GradientsBefore before(weights_);
  run_checked(pass, [&](const std::shared_ptr<Pass>& checked) { step_(samples, checked); });
  if (before.changed()) return;
  // Who takes gradients in the middle of a backward pass may leave none.
  if (pass->taker() && !have_gradients(weights_)) return;
  throw std::runtime_error(
      "stack network: the step changed no gradient of any weight; expected it to end with "
      "loss.backward()");
}

NetworkRestored::NetworkRestored(Network& network)
    : network_(network),
      plan_(network.plan()),
      options_(network.options_),
      executor_(network.executor_),
      executors_(network.executors_) {
  for (const Stack& stack : network.stacks()) {
    stacks_.emplace_back(stack->options(), stack->executors());
  }
}

NetworkRestored::~NetworkRestored() {
  network_.set_plan(plan_);
  network_.options_ = options_;
  network_.executor_ = executor_;
  network_.executors_ = executors_;
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    Stack stack = network_.stacks()[i];
    stack->set_options(stacks_[i].first);
    stack->set_executors(stacks_[i].second);
  }
}

void drop_gradients(const Network& network) {
  for (at::Tensor& weight : network.weights()) weight.mutable_grad().reset();
}

}  // namespace pareprop
