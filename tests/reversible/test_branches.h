#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "pareprop/graph/stack_plan.h"
#include "pareprop/reversible/branch.h"

namespace pareprop::testing {

struct BranchShape {
  std::int64_t width = 8;
  double dropout = 0.0;
  double drop_path = 0.0;
  bool plain_linear = false;  // torch's linear: cannot defer, cannot skip its output
  at::ScalarType dtype = at::kDouble;
};

// F: layer norm, two-head attention over tokens, optional additive score bias (extras[0], may
// require gradient) and optional padding mask (extras[1], bool (batch, tokens), true is kept).
class TestAttention : public torch::nn::Module {
 public:
  TestAttention(const BranchShape& shape, std::uint64_t seed);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 private:
  BranchShape shape_;
  at::Tensor norm_weight_, norm_bias_, qkv_weight_, qkv_bias_, proj_weight_, proj_bias_;
};

// G: layer norm, linear, GELU, linear.
class TestMlp : public torch::nn::Module {
 public:
  static constexpr bool skips_output = true;
  TestMlp(const BranchShape& shape, std::uint64_t seed);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 private:
  BranchShape shape_;
  at::Tensor norm_weight_, norm_bias_, weight1_, bias1_, weight2_, bias2_;
};

std::vector<Block> test_blocks(int depth, const BranchShape& shape, std::uint64_t seed = 1);

// Normal numbers of their own generator.
at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed);
// 2 x 4 x 8 of them in double, which want a gradient.
at::Tensor small_input();

// A mode's plan in which no branch keeps its tape but by its policy.
inline StackPlan without_tail(Mode mode, int depth) {
  StackPlan plan = plan_of(mode, depth);
  plan.tail = 0;
  return plan;
}

}  // namespace pareprop::testing
