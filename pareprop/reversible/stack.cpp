#include "pareprop/reversible/stack.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <stdexcept>
#include <string>

#include "pareprop/ops/describe.h"
#include "pareprop/ops/sum_order.h"
#include "pareprop/reversible/stack_call.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop {
namespace {

// The node of one call: inputs x1, x2 and StackCall::leaves(), outputs y1 and y2.
struct StackNode : torch::autograd::Node {
  std::shared_ptr<StackCall> call;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (c10::GradMode::is_enabled()) {
      throw std::runtime_error(
          "stack: the gradient of a gradient (create_graph) is not available, because the forward "
          "pass was not stored; use Stack::reference for it");
    }
    if (!grads[0].defined() && !grads[1].defined()) {
      return torch::autograd::variable_list(num_outputs());
    }
    return call->backward(std::move(grads[0]), std::move(grads[1]),
                          torch::autograd::get_current_graph_task_keep_graph());
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

void StackImpl::set_plan(StackPlan plan) {
  check_plan(plan, depth());
  plan_ = std::move(plan);
}

void StackImpl::set_executor(std::shared_ptr<Executor> executor) {
  set_executors(std::make_shared<Executors>(std::move(executor)));
}

void StackImpl::set_executors(std::shared_ptr<Executors> executors) {
  executors_ = executors ? std::move(executors) : std::make_shared<Executors>();
}

std::shared_ptr<StackCall> StackImpl::begin_call(const CallOptions& call) {
  return std::make_shared<StackCall>(
      StackCall::Setup{
          .branches = branches_, .plan = plan_, .options = options_, .observers = observers_},
      pass_for(call), call.extras);
}

std::shared_ptr<Pass> StackImpl::pass_for(const CallOptions& call) {
  return call.pass ? call.pass : std::make_shared<Pass>(options_.seed, calls_++);
}

void StackImpl::check_streams(const at::Tensor& x1, const at::Tensor& x2) const {
  auto fail = [&](const std::string& expected) {
    throw std::invalid_argument("stack: expected " + expected + ", got x1 " + describe(x1) +
                                " and x2 " + describe(x2));
  };
  if (!x1.defined() || !x2.defined()) fail("two defined streams");
  if (x1.sizes() != x2.sizes() || x1.scalar_type() != x2.scalar_type() ||
      x1.device() != x2.device()) {
    fail("two streams of the same shape, dtype and device");
  }
  if (x1.scalar_type() != stream_dtype(options_.precision)) {
    fail(std::string(c10::toString(stream_dtype(options_.precision))) + " streams with precision " +
         std::string(pareprop::name(options_.precision)) +
         " (the branches convert to lower precision themselves; streams must not)");
  }
}

std::pair<at::Tensor, at::Tensor> StackImpl::forward(const at::Tensor& x1, const at::Tensor& x2,
                                                     const CallOptions& call) {
  check_streams(x1, x2);
  if (depth() == 0) return {x1, x2};
  auto state = begin_call(call);
  if (reference_) return state->forward_with_autograd(x1, x2);
  std::vector<at::Tensor> inputs{x1, x2};
  const auto leaves = state->leaves();
  inputs.insert(inputs.end(), leaves.begin(), leaves.end());
  const bool for_backward = torch::autograd::compute_requires_grad(inputs);
  if (!for_backward) return state->forward(x1, x2, false);
  if (plan_.overlap) state->run_on(executors_->get(x1.device(), plan_.lanes));
  // Before the forward pass: where a parameter is first used, its gradient is accumulated later,
  // and that is the caller's stream.
  auto node = c10::make_intrusive<StackNode>();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  state->report_to([stack = std::dynamic_pointer_cast<StackImpl>(shared_from_this())](
                       const DriftReport& drift) { stack->report(drift); });
  auto [y1, y2] = state->forward(x1, x2, true);
  node->call = std::move(state);
  torch::autograd::set_history(y1, node);
  torch::autograd::set_history(y2, node);
  return {y1, y2};
}

std::pair<at::Tensor, at::Tensor> StackImpl::inverse(const at::Tensor& y1, const at::Tensor& y2,
                                                     const CallOptions& call) {
  check_streams(y1, y2);
  if (depth() == 0) return {y1, y2};
  return begin_call(call)->inverse(y1, y2);
}

std::pair<at::Tensor, at::Tensor> StackImpl::reference(const at::Tensor& x1, const at::Tensor& x2,
                                                       const CallOptions& call) {
  check_streams(x1, x2);
  if (depth() == 0) return {x1, x2};
  return begin_call(call)->forward_with_autograd(x1, x2);
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
