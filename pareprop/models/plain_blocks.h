#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/graph/stack_plan.h"
#include "pareprop/ops/precision.h"
#include "pareprop/reversible/branch.h"
#include "pareprop/reversible/pass.h"

namespace pareprop::models {

// An ordinary residual block of the same branches: h = x + f(x), y = h + g(h).
class PlainBlock : public torch::nn::Module {
 public:
  PlainBlock(Branch f, Branch g);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 private:
  Branch f_, g_;
};

// Runs a module outside of any stack: with `recompute` only x is kept for the backward pass, else
// all that autograd keeps. Randomness is drawn from `key`.
at::Tensor run_plain(const Branch& module, const at::Tensor& x,
                     const std::vector<at::Tensor>& extras, RandomKey key, bool recompute,
                     Precision precision);

// Throws std::invalid_argument when a policy is neither store nor checkpoint: ordinary blocks have
// no inverse.
void check_plain_plan(const StackPlan& plan);

// Such blocks in a row, trained stored or checkpointed block by block.
class PlainBlocks {
 public:
  PlainBlocks() = default;
  // Registers the blocks in `owner`, with the parameter names of a stack: name.0.f.norm.weight, ...
  // `first` is the number of the first one in the network, for randomness of its own.
  PlainBlocks(torch::nn::Module& owner, const std::string& name, std::vector<Block> blocks,
              std::uint64_t first = 0);

  // The same of modules that are whole blocks: name.0.weight, ...
  PlainBlocks(torch::nn::Module& owner, const std::string& name, std::vector<Branch> blocks,
              std::uint64_t first = 0);

  at::Tensor forward(at::Tensor x, const std::vector<at::Tensor>& extras, const Pass& pass) const;

  int depth() const { return static_cast<int>(blocks_.size()); }
  const StackPlan& plan() const { return plan_; }
  // REQUIRES: check_plain_plan(), and a policy for each block.
  void set_plan(StackPlan plan) { plan_ = std::move(plan); }
  void set_precision(Precision precision) { precision_ = precision; }

 private:
  std::vector<Branch> blocks_;
  std::uint64_t first_ = 0;
  StackPlan plan_;
  Precision precision_ = Precision::fp32;
};

}  // namespace pareprop::models
