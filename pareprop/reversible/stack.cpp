#include "pareprop/reversible/stack.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>
#include <stdexcept>
#include <string>

#include "pareprop/lanes/serial_lane.h"
#include "pareprop/ops/describe.h"
#include "pareprop/reversible/stack_call.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop {
namespace {

// The node of one call: inputs x1, x2 and StackCall::leaves(), outputs y1 and y2.
struct StackNode : torch::autograd::Node {
  std::shared_ptr<StackCall> call;
  std::shared_ptr<StackImpl> stack;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (c10::GradMode::is_enabled()) {
      throw std::runtime_error(
          "stack: the gradient of a gradient (create_graph) is not available, because the forward "
          "pass "
          "was not stored; use Stack::reference for it");
    }
    if (!grads[0].defined() && !grads[1].defined()) {
      return torch::autograd::variable_list(num_outputs());
    }
    // Not a tensor: whoever holds a gradient keeps the call from writing over it.
    const c10::Device device = (grads[0].defined() ? grads[0] : grads[1]).device();
    const auto executor = stack->executor(device, call->overlap());
    const auto begin = std::chrono::steady_clock::now();
    auto result = call->backward(std::move(grads[0]), std::move(grads[1]),
                                 torch::autograd::get_current_graph_task_keep_graph(), *executor);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    stack->report(*call, took.count());
    return result;
  }

  void release_variables() override { call->release(); }
  std::string name() const override { return "ParepropStack"; }
};

}  // namespace

StackImpl::StackImpl(std::vector<Block> blocks, StackOptions options) {
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
  set_options(std::move(options));
}

void StackImpl::set_options(StackOptions options) {
  resolve_policies(options, depth());
  if (options.lookahead < 0 || options.deferred < 0 || options.lanes < 2 || options.lanes > 3) {
    throw std::invalid_argument("stack: expected lookahead >= 0, deferred >= 0 and 2 or 3 lanes");
  }
  options_ = std::move(options);
  tuner_ = options_.mode == Mode::automatic ? std::make_unique<AutoTuner>() : nullptr;
}

StackOptions StackImpl::chosen_options() const {
  StackOptions options = tuner_ ? tuner_->next(options_, depth()) : options_;
  options.policies = resolve_policies(options, depth());
  return options;
}

std::shared_ptr<StackCall> StackImpl::begin_call(const CallOptions& call) {
  return std::make_shared<StackCall>(branches_, tuner_ ? tuner_->next(options_, depth()) : options_,
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
         " (branches compute in lower precision by themselves, streams must not)");
  }
}

std::pair<at::Tensor, at::Tensor> StackImpl::forward(const at::Tensor& x1, const at::Tensor& x2,
                                                     const CallOptions& call) {
  check_streams(x1, x2);
  if (depth() == 0) return {x1, x2};
  auto state = begin_call(call);
  std::vector<at::Tensor> inputs{x1, x2};
  const auto leaves = state->leaves();
  inputs.insert(inputs.end(), leaves.begin(), leaves.end());
  const bool for_backward = torch::autograd::compute_requires_grad(inputs);
  auto [y1, y2] = state->forward(x1, x2, for_backward);
  if (!for_backward) return {y1, y2};

  auto node = c10::make_intrusive<StackNode>();
  node->call = std::move(state);
  node->stack = std::dynamic_pointer_cast<StackImpl>(shared_from_this());
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  torch::autograd::set_history(y1, node);
  torch::autograd::set_history(y2, node);
  return {y1, y2};
}

std::pair<at::Tensor, at::Tensor> StackImpl::reference(const at::Tensor& x1, const at::Tensor& x2,
                                                       const CallOptions& call) {
  check_streams(x1, x2);
  if (depth() == 0) return {x1, x2};
  return begin_call(call)->forward_with_autograd(x1, x2);
}

std::shared_ptr<Executor> StackImpl::executor(c10::Device device, bool overlap) {
  if (!overlap) return std::make_shared<SerialLane>();
  if (options_.executor) return options_.executor;
  std::lock_guard lock(mutex_);
  if (!own_executor_ || own_executor_->lanes() < options_.lanes) {
    own_executor_ = make_executor(device, options_.lanes);
  }
  return own_executor_;
}

void StackImpl::report(const StackCall& call, double seconds) {
  if (tuner_) tuner_->observe(call.options(), seconds, call.block_tape_bytes());
  std::lock_guard lock(mutex_);
  drift_ = call.drift();
}

DriftReport StackImpl::drift() const {
  std::lock_guard lock(mutex_);
  return drift_;
}

}  // namespace pareprop
