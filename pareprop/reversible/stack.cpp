#include "pareprop/reversible/stack.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "pareprop/ops/describe.h"
#include "pareprop/ops/sum_order.h"
#include "pareprop/reversible/stack_call.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop {
namespace {

// The node of one call: inputs are the streams and StackCall::leaves(), outputs the streams.
struct StackNode : torch::autograd::Node {
  std::shared_ptr<StackCall> call;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (c10::GradMode::is_enabled()) {
      throw std::runtime_error(
          "stack: the gradient of a gradient (create_graph) is not available, because the forward "
          "pass was not stored; use Stack::reference for it");
    }
    const auto defined = [](const at::Tensor& grad) { return grad.defined(); };
    if (std::none_of(grads.begin(), grads.end(), defined)) {
      return torch::autograd::variable_list(num_outputs());
    }
    return call->backward(std::move(grads), torch::autograd::get_current_graph_task_keep_graph());
  }

  void release_variables() override { call->release(); }
  std::string name() const override { return "ParepropStack"; }
};

}  // namespace

StackImpl::StackImpl(std::vector<Block> blocks, Mode mode, StackOptions options)
    : executors_(std::make_shared<Executors>()) {
  set_options(options);
  add_blocks(std::move(blocks));
  set_plan(plan_of(mode, depth()));
}

StackImpl::StackImpl(std::vector<Block> blocks, StackPlan plan, StackOptions options)
    : executors_(std::make_shared<Executors>()) {
  set_options(options);
  add_blocks(std::move(blocks));
  set_plan(std::move(plan));
}

StackImpl::StackImpl(std::vector<Block> blocks, Coupling coupling, StackOptions options)
    : coupling_(coupling), executors_(std::make_shared<Executors>()) {
  set_options(options);
  add_blocks(std::move(blocks));
  set_plan(plan_of(Mode::stored, depth()));
}

void StackImpl::set_options(const StackOptions& options) {
  if (options.arithmetic == Arithmetic::exact) fix_order_of_sums();
  options_ = options;
}

void StackImpl::add_blocks(std::vector<Block> blocks) {
  std::vector<Branch> branches;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    // Parameters are called 0.f.weight, 0.g.weight, 1.f.weight, ...
    const auto block =
        register_module(std::to_string(i), std::make_shared<torch::nn::Module>("Block"));
    for (auto& [branch, letter] : {std::pair{&blocks[i].f, "f"}, std::pair{&blocks[i].g, "g"}}) {
      // The same module may be in several places: it is registered where it comes first.
      bool known = branch->module() == nullptr;
      for (const auto& other : branches) known = known || other.module() == branch->module();
      if (!known) block->register_module(letter, branch->module());
      branches.push_back(std::move(*branch));
    }
  }
  branches_ = std::make_shared<const std::vector<Branch>>(std::move(branches));
}

std::vector<at::Tensor> StackImpl::weights() const {
  std::vector<at::Tensor> all;
  std::unordered_set<const c10::TensorImpl*> known;
  for (const Branch& branch : *branches_) {
    for (const auto& [name, tensor] : branch.parameters()) {
      if (known.insert(tensor.unsafeGetTensorImpl()).second) all.push_back(tensor);
    }
  }
  return all;
}

void StackImpl::set_plan(StackPlan plan) {
  check_plan(plan, depth(), coupling_);
  plan_ = std::move(plan);
}

void StackImpl::set_executor(std::shared_ptr<Executor> executor) {
  set_executors(std::make_shared<Executors>(std::move(executor)));
}

void StackImpl::set_executors(std::shared_ptr<Executors> executors) {
  executors_ = executors ? std::move(executors) : std::make_shared<Executors>();
}

void StackImpl::set_observers(std::shared_ptr<ObserverList> observers) {
  observers_ = std::move(observers);
}

std::shared_ptr<StackCall> StackImpl::begin_call(const CallOptions& call) {
  return std::make_shared<StackCall>(StackCall::Setup{.branches = branches_,
                                                      .coupling = coupling_,
                                                      .plan = plan_,
                                                      .options = options_,
                                                      .observers = observers_},
                                     pass_for(call), call.extras);
}

std::shared_ptr<Pass> StackImpl::pass_for(const CallOptions& call) {
  return call.pass ? call.pass : std::make_shared<Pass>(options_.seed, calls_++);
}

void StackImpl::check_streams(const std::vector<at::Tensor>& x) const {
  std::string got = "x1 " + describe(x[0]);
  if (x.size() > 1) got.append(" and x2 ").append(describe(x[1]));
  const auto fail = [&](const std::string& expected) {
    throw std::invalid_argument("stack: expected " + expected + ", got " + got);
  };
  const auto wanted = static_cast<std::size_t>(streams(coupling_));
  if (x.size() != wanted) {
    fail(wanted == 1 ? "one stream, as its blocks are ordinary ones"
                     : "two streams, as its blocks are reversible");
  }
  for (const at::Tensor& one : x) {
    if (!one.defined()) fail(wanted == 1 ? "a defined stream" : "two defined streams");
    if (one.sizes() != x[0].sizes() || one.scalar_type() != x[0].scalar_type() ||
        one.device() != x[0].device()) {
      fail("two streams of the same shape, dtype and device");
    }
  }
  if (x[0].scalar_type() != stream_dtype(options_.precision)) {
    fail(std::string(c10::toString(stream_dtype(options_.precision))) + " streams with precision " +
         std::string(pareprop::name(options_.precision)) +
         " (the branches convert to lower precision themselves; streams must not)");
  }
}

std::pair<at::Tensor, at::Tensor> StackImpl::forward(const at::Tensor& x1, const at::Tensor& x2,
                                                     const CallOptions& call) {
  auto y = run({x1, x2}, call, reference_);
  return {std::move(y[0]), std::move(y[1])};
}

at::Tensor StackImpl::forward(const at::Tensor& x, const CallOptions& call) {
  return run({x}, call, reference_).front();
}

std::vector<at::Tensor> StackImpl::run(const std::vector<at::Tensor>& x, const CallOptions& call,
                                       bool reference) {
  check_streams(x);
  if (depth() == 0) return x;
  auto state = begin_call(call);
  if (reference) return state->forward_with_autograd(x);
  std::vector<at::Tensor> inputs = x;
  const auto leaves = state->leaves();
  inputs.insert(inputs.end(), leaves.begin(), leaves.end());
  const bool for_backward = torch::autograd::compute_requires_grad(inputs);
  if (!for_backward) return state->forward(x, false);
  if (plan_.overlap) state->run_on(executors_->get(x[0].device(), plan_.lanes));
  // Before the forward pass: where a parameter is first used, its gradient is accumulated later,
  // and that is the caller's stream.
  auto node = c10::make_intrusive<StackNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  state->report_to([stack = std::dynamic_pointer_cast<StackImpl>(shared_from_this())](
                       const DriftReport& drift) { stack->report(drift); });
  auto y = state->forward(x, true);
  node->call = std::move(state);
  for (at::Tensor& one : y) torch::autograd::set_history(one, node);
  return y;
}

std::pair<at::Tensor, at::Tensor> StackImpl::inverse(const at::Tensor& y1, const at::Tensor& y2,
                                                     const CallOptions& call) {
  check_streams({y1, y2});
  if (depth() == 0) return {y1, y2};
  return begin_call(call)->inverse(y1, y2);
}

std::pair<at::Tensor, at::Tensor> StackImpl::reference(const at::Tensor& x1, const at::Tensor& x2,
                                                       const CallOptions& call) {
  auto y = run({x1, x2}, call, true);
  return {std::move(y[0]), std::move(y[1])};
}

at::Tensor StackImpl::reference(const at::Tensor& x, const CallOptions& call) {
  return run({x}, call, true).front();
}

void StackImpl::report(const DriftReport& drift) {
  std::lock_guard lock(mutex_);
  drift_ = drift;
}

DriftReport StackImpl::drift() const {
  std::lock_guard lock(mutex_);
  return drift_;
}

}  // namespace pareprop
