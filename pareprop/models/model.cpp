#include "pareprop/models/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <set>
#include <utility>

#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/checkpoint.h"

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

void Model::train_only(const std::function<bool(const std::string& name)>& trains) {
  for (auto& parameter : named_parameters()) {
    parameter.value().set_requires_grad(trains(parameter.key()));
  }
  tagged_.reset();  // those that are trained get tags again
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

at::Tensor Model::run_between(const Branch& module, const at::Tensor& x, std::uint64_t stage,
                              std::uint64_t part, const Pass& pass,
                              const ForwardOptions& options) const {
  const RandomKey key = pass.random_key({stage, part, 0});
  if (recompute_between() && !options.reference) {
    return checkpoint(module, x, {.random_key = key, .precision = precision()}).to(x.scalar_type());
  }
  RandomStream random(key);
  const RandomScope random_scope(random);
  const auto device = x.device().type();
  const AutocastScope scope(device, AutocastState::of_this_thread(device, precision()));
  return module(x, {}).to(x.scalar_type());
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

Stack Model::add_stack(torch::nn::Module& owner, const std::string& name, std::vector<Block> blocks,
                       Coupling coupling) {
  stacks_.push_back(owner.register_module(name, Stack(std::move(blocks), coupling)));
  return stacks_.back();
}

Stack Model::add_plain_row(torch::nn::Module& row, int first, std::vector<Block> blocks) {
  Stack stack(std::move(blocks), Coupling::residual);
  for (const auto& block : stack->children()) row.register_module(std::to_string(first++), block);
  return stacks_.emplace_back(stack);
}

std::pair<at::Tensor, at::Tensor> Model::run_streams(const Stack& stack, const at::Tensor& x,
                                                     const CallOptions& call,
                                                     const ForwardOptions& options) {
  Stack same = stack;
  return options.reference ? same->reference(x, x, call) : same->forward(x, x, call);
}

at::Tensor Model::run_plain(const Stack& stack, const at::Tensor& x, const CallOptions& call,
                            const ForwardOptions& options) {
  Stack same = stack;
  return options.reference ? same->reference(x, call) : same->forward(x, call);
}

std::shared_ptr<Pass> Model::pass_for(const ForwardOptions& options) {
  return options.pass ? options.pass : std::make_shared<Pass>(0, steps_++);
}

}  // namespace pareprop::models
