#include "pareprop/models/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <set>
#include <utility>

#include "pareprop/ops/random_stream.h"

namespace pareprop::models {

at::Tensor Model::loss(const Batch& batch, const ForwardOptions& options, at::Tensor* scores) {
  if (!tagged_) tagged_.emplace(parameters());
  const ScoredLoss made = scored_loss(batch, options);
  if (scores != nullptr) *scores = made.scores;
  return made.loss;
}

Model::ScoredLoss Model::scored_loss(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor scores = forward(batch, options);
  return {at::cross_entropy_loss(scores, row_targets(batch)), scores.detach()};
}

// An embedding that is also the output layer gets gradients from elsewhere.
std::vector<at::Tensor> Model::block_weights() const {
  std::set<const torch::nn::Module*> inside;
  for (const Stack& stack : stacks_) {
    for (const auto& module : stack->modules()) inside.insert(module.get());
  }
  std::set<const c10::TensorImpl*> elsewhere;
  const auto add = [&](const torch::nn::Module& module) {
    for (const at::Tensor& weight : module.parameters(/*recurse=*/false)) {
      elsewhere.insert(weight.unsafeGetTensorImpl());
    }
  };
  add(*this);
  for (const auto& module : modules(/*include_self=*/false)) {
    if (!inside.contains(module.get())) add(*module);
  }
  std::vector<at::Tensor> own = Network::block_weights();
  std::erase_if(own, [&](const at::Tensor& weight) {
    return elsewhere.contains(weight.unsafeGetTensorImpl());
  });
  return own;
}

void Model::step(std::int64_t samples, const std::shared_ptr<Pass>& pass) {
  const Batch batch = example(samples, pass->seed());
  run_checked(pass, [&](const std::shared_ptr<Pass>& checked) {
    const at::Tensor made = loss(batch, {.pass = checked});
    for (int i = pass->backward_passes(); i > 0; --i) {
      made.backward(/*gradient=*/{}, /*retain_graph=*/i > 1);
    }
  });
}

std::vector<at::Tensor> Model::step_to_inputs(std::int64_t samples,
                                              const std::shared_ptr<Pass>& pass) {
  Batch batch = example(samples, pass->seed());
  const bool differentiable = at::isFloatingType(batch.input.scalar_type());
  if (differentiable) batch.input.requires_grad_(true);
  run_checked(pass, [&](const std::shared_ptr<Pass>& checked) {
    loss(batch, {.pass = checked}).backward();
  });
  return differentiable ? std::vector<at::Tensor>{batch.input.grad()} : std::vector<at::Tensor>{};
}

std::vector<int> Model::depths() const {
  std::vector<int> depths = Network::depths();
  for (const auto& blocks : plain_blocks_) depths.push_back(blocks->depth());
  return depths;
}

StepPlan Model::plan() const {
  StepPlan plan = Network::plan();
  for (const auto& blocks : plain_blocks_) plan.stacks.push_back(blocks->plan());
  return plan;
}

void Model::set_plan(const StepPlan& plan) {
  if (plain_blocks_.empty()) return Network::set_plan(plan);
  check_step_plan(plan);
  for (const StackPlan& part : plan.stacks) check_plain_plan(part);
  set_recompute_between(plan.recompute_between);
  for (std::size_t i = 0; i < plain_blocks_.size(); ++i) {
    plain_blocks_[i]->set_plan(plan.stacks[i]);
  }
}

void Model::set_options(const StackOptions& options) {
  Network::set_options(options);
  for (const auto& blocks : plain_blocks_) blocks->set_precision(options.precision);
}

at::Tensor Model::run_between(const Branch& module, const at::Tensor& x, std::uint64_t stage,
                              std::uint64_t part, const Pass& pass,
                              const ForwardOptions& options) const {
  const RandomKey key = pass.random_key({stage, part, 0});
  const bool recompute = recompute_between() && !options.reference;
  return run_plain(module, x, {}, key, recompute, precision()).to(x.scalar_type());
}

at::Tensor Model::run_outside(LinearLayer& layer, const at::Tensor& x) const {
  const auto device = x.device().type();
  const AutocastScope scope(device, AutocastState::of_this_thread(device, precision()));
  return layer.forward(x).to(x.scalar_type());
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

at::TensorOptions Model::weight_options() const {
  const auto all = parameters();
  return all.empty() ? at::TensorOptions() : all.front().options().requires_grad(false);
}

Stack Model::add_stack(torch::nn::Module& owner, const std::string& name,
                       std::vector<Block> blocks) {
  stacks_.push_back(owner.register_module(name, Stack(std::move(blocks))));
  return stacks_.back();
}

std::shared_ptr<PlainBlocks> Model::add_plain_blocks(PlainBlocks blocks) {
  return plain_blocks_.emplace_back(std::make_shared<PlainBlocks>(std::move(blocks)));
}

std::shared_ptr<Pass> Model::pass_for(const ForwardOptions& options) {
  return options.pass ? options.pass : std::make_shared<Pass>(0, steps_++);
}

}  // namespace pareprop::models
