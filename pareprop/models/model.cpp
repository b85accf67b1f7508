#include "pareprop/models/model.h"

#include <ATen/ops/cross_entropy_loss.h>

#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::models {

void Model::set_stack_options(StackOptions options) {
  if (options.mode == Mode::pareprop && !options.executor && !parameters().empty()) {
    options.executor = make_executor(parameters().front().device(), options.lanes);
  }
  for (std::size_t i = 0; i < stacks_.size(); ++i) {
    StackOptions own = options;
    own.keep_tail = options.keep_tail && i + 1 == stacks_.size();
    stacks_[i]->set_options(own);
  }
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

Stack Model::add_stack(const std::string& name, std::vector<Block> blocks) {
  stacks_.push_back(register_module(name, Stack(std::move(blocks))));
  return stacks_.back();
}

std::shared_ptr<Pass> Model::pass_for(const ForwardOptions& options) {
  return options.pass ? options.pass : std::make_shared<Pass>(0, steps_++);
}

at::Tensor classification_loss(const at::Tensor& scores, const at::Tensor& target) {
  return at::cross_entropy_loss(scores, target);
}

}  // namespace pareprop::models
