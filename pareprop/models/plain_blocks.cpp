#include "pareprop/models/plain_blocks.h"

#include <stdexcept>

#include "pareprop/ops/precision.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/checkpoint.h"

namespace pareprop::models {

PlainBlock::PlainBlock(Branch f, Branch g) : f_(std::move(f)), g_(std::move(g)) {
  register_module("f", f_.module());
  register_module("g", g_.module());
}

at::Tensor PlainBlock::forward(const at::Tensor& x, const BranchCall& call) {
  const at::Tensor h = x.add(f_(x, {call.extras}));
  return h.add(g_(h, {call.extras}));
}

at::Tensor run_plain(const Branch& module, const at::Tensor& x,
                     const std::vector<at::Tensor>& extras, RandomKey key, bool recompute,
                     Precision precision) {
  if (recompute) {
    return checkpoint(module, x, {.extras = extras, .random_key = key, .precision = precision});
  }
  RandomStream random(key);
  RandomScope random_scope(random);
  const auto device = x.device().type();
  AutocastScope autocast_scope(device, AutocastState::of_this_thread(device, precision));
  return module(x, {extras});
}

namespace {

std::vector<Branch> residual(std::vector<Block> blocks) {
  std::vector<Branch> whole;
  for (Block& block : blocks) {
    whole.emplace_back(std::make_shared<PlainBlock>(std::move(block.f), std::move(block.g)));
  }
  return whole;
}

}  // namespace

PlainBlocks::PlainBlocks(torch::nn::Module& owner, const std::string& name,
                         std::vector<Block> blocks, std::uint64_t first)
    : PlainBlocks(owner, name, residual(std::move(blocks)), first) {}

PlainBlocks::PlainBlocks(torch::nn::Module& owner, const std::string& name,
                         std::vector<Branch> blocks, std::uint64_t first)
    : blocks_(std::move(blocks)), first_(first), plan_(plan_of(Mode::stored, depth())) {
  const auto list = owner.register_module(name, std::make_shared<torch::nn::Module>("PlainBlocks"));
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    list->register_module(std::to_string(i), blocks_[i].module());
  }
}

at::Tensor PlainBlocks::forward(at::Tensor x, const std::vector<at::Tensor>& extras,
                                const Pass& pass) const {
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const RandomKey key = pass.random_key({first_ + i});
    x = run_plain(blocks_[i], x, extras, key, plan_.policies[i] == Policy::checkpoint, precision_);
  }
  return x;
}

void check_plain_plan(const StackPlan& plan) {
  for (const Policy policy : plan.policies) {
    if (policy == Policy::store || policy == Policy::checkpoint) continue;
    throw std::invalid_argument("a plain network cannot be trained with policy " +
                                std::string(name(policy)) +
                                ": the blocks have no inverse. Use mode stored or checkpoint, or "
                                "the reversible network");
  }
}

}  // namespace pareprop::models
