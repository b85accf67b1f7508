#include "pareprop/models/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include <utility>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/plain_blocks.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::models {

void Model::tag_gradients() {
  if (std::exchange(gradients_tagged_, true)) return;
  for (auto& parameter : parameters()) {
    if (!parameter.requires_grad()) continue;
    parameter.register_hook([](const at::Tensor& gradient) {
      memory::retag(gradient.storage().data_ptr(), memory::Tag::gradients);
    });
  }
}

at::Tensor Model::loss(const Batch& batch, const ForwardOptions& options, at::Tensor* scores) {
  tag_gradients();
  const ScoredLoss made = scored_loss(batch, options);
  if (scores != nullptr) *scores = made.scores;
  return made.loss;
}

Model::ScoredLoss Model::scored_loss(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor scores = forward(batch, options);
  return {at::cross_entropy_loss(scores, row_targets(batch)), scores.detach()};
}

void Model::set_stack_options(StackOptions options) {
  between_ = options.recompute_between ? Mode::checkpoint : options.mode;
  precision_ = options.precision;
  const bool overlaps = options.mode == Mode::pareprop || options.mode == Mode::automatic;
  if (overlaps && !options.executor)
    options.executor = make_executor(weight_options().device(), options.lanes);
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    StackOptions own = options;
    own.keep_tail = options.keep_tail && i + 1 == stacks_.size();
    stacks_[i]->set_options(own);
  }
}

at::Tensor Model::run_between(const Branch& module, const at::Tensor& x, std::uint64_t stage,
                              std::uint64_t part, const Pass& pass,
                              const ForwardOptions& options) const {
  const auto key = random_key({pass.seed(), pass.step(), stage, part, 0});
  const Mode mode = options.reference ? Mode::stored : between_;
  return run_plain(module, x, {}, key, mode, precision_).to(x.scalar_type());
}

at::Tensor Model::run_outside(LinearLayer& layer, const at::Tensor& x) const {
  const auto device = x.device().type();
  const AutocastScope scope(device, AutocastState::of_this_thread(device, precision_));
  return layer.forward(x).to(x.scalar_type());
}

DriftReport Model::drift() const {
  DriftReport worst;
  for (const Stack& stack : stacks_) {
    const DriftReport own = stack->drift();
    if (worst.worst_branch < 0 || !(own.worst <= worst.worst)) worst = own;
  }
  return worst;
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

std::shared_ptr<Pass> Model::pass_for(const ForwardOptions& options) {
  return options.pass ? options.pass : std::make_shared<Pass>(0, steps_++);
}

}  // namespace pareprop::models
