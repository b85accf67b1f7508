#include "tests/reversible/test_branches.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "pareprop/ops/linear.h"
#include "pareprop/ops/random_stream.h"

namespace pareprop::testing {
namespace {

at::Tensor project(const BranchShape& shape, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& b, bool output_needed = true) {
  return shape.plain_linear ? at::linear(x, w, b) : linear(x, w, b, output_needed);
}

// Where softmax is computed is said: torch's autocast leaves it in bf16 on the CPU, and has it in
// float32 on accelerators.
at::ScalarType wide(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

at::Tensor finish(const torch::nn::Module& module, const BranchShape& shape, at::Tensor y) {
  if (!module.is_training()) return y;
  return drop_path(dropout(y, shape.dropout), shape.drop_path);
}

}  // namespace

at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::TensorOptions(dtype));
}

at::Tensor small_input() { return random_tensor({2, 4, 8}, at::kDouble, 7).requires_grad_(true); }

TestAttention::TestAttention(const BranchShape& shape, std::uint64_t seed) : shape_(shape) {
  const auto c = shape.width;
  auto make = [&, i = seed * 100](at::IntArrayRef sizes, double scale, double mean = 0.0) mutable {
    return random_tensor(sizes, shape.dtype, i++).mul_(scale).add_(mean);
  };
  norm_weight_ = register_parameter("norm_weight", make({c}, 0.1, 1.0));
  norm_bias_ = register_parameter("norm_bias", make({c}, 0.1));
  qkv_weight_ = register_parameter("qkv_weight", make({3 * c, c}, 0.5 / std::sqrt(double(c))));
  qkv_bias_ = register_parameter("qkv_bias", make({3 * c}, 0.1));
  proj_weight_ = register_parameter("proj_weight", make({c, c}, 0.5 / std::sqrt(double(c))));
  proj_bias_ = register_parameter("proj_bias", make({c}, 0.1));
}

at::Tensor TestAttention::forward(const at::Tensor& x, const BranchCall& call) {
  const auto batch = x.size(0), tokens = x.size(1), c = x.size(2);
  const at::Tensor n = at::layer_norm(x, {c}, norm_weight_, norm_bias_);
  const auto qkv = project(shape_, n, qkv_weight_, qkv_bias_)
                       .reshape({batch, tokens, 3, 2, c / 2})
                       .permute({2, 0, 3, 1, 4})
                       .unbind(0);
  at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(-1, -2)).mul(1.0 / std::sqrt(c / 2.0));
  if (call.extras.size() > 0 && call.extras[0].defined()) scores = scores.add(call.extras[0]);
  if (call.extras.size() > 1 && call.extras[1].defined()) {
    const at::Tensor mask = call.extras[1].reshape({batch, 1, 1, tokens});
    scores = scores.masked_fill(mask.logical_not(), -1e4);
  }
  at::Tensor p = at::softmax(scores, -1, wide(scores.scalar_type()));
  if (is_training()) p = dropout(p, shape_.dropout);
  const at::Tensor y =
      at::matmul(p.to(qkv[2].scalar_type()), qkv[2]).transpose(1, 2).reshape({batch, tokens, c});
  return finish(*this, shape_, project(shape_, y, proj_weight_, proj_bias_));
}

TestMlp::TestMlp(const BranchShape& shape, std::uint64_t seed) : shape_(shape) {
  const auto c = shape.width;
  auto make = [&, i = seed * 100 + 50](at::IntArrayRef sizes, double scale,
                                       double mean = 0.0) mutable {
    return random_tensor(sizes, shape.dtype, i++).mul_(scale).add_(mean);
  };
  norm_weight_ = register_parameter("norm_weight", make({c}, 0.1, 1.0));
  norm_bias_ = register_parameter("norm_bias", make({c}, 0.1));
  weight1_ = register_parameter("weight1", make({2 * c, c}, 0.5 / std::sqrt(double(c))));
  bias1_ = register_parameter("bias1", make({2 * c}, 0.1));
  weight2_ = register_parameter("weight2", make({c, 2 * c}, 0.5 / std::sqrt(2.0 * double(c))));
  bias2_ = register_parameter("bias2", make({c}, 0.1));
}

at::Tensor TestMlp::forward(const at::Tensor& x, const BranchCall& call) {
  const at::Tensor n = at::layer_norm(x, {x.size(-1)}, norm_weight_, norm_bias_);
  const at::Tensor h = at::gelu(project(shape_, n, weight1_, bias1_));
  return finish(*this, shape_, project(shape_, h, weight2_, bias2_, call.output_needed));
}

std::vector<Block> test_blocks(int depth, const BranchShape& shape, std::uint64_t seed) {
  std::vector<Block> blocks;
  for (int i = 0; i < depth; ++i) {
    const auto own = seed + static_cast<std::uint64_t>(i);
    blocks.push_back(
        {std::make_shared<TestAttention>(shape, own), std::make_shared<TestMlp>(shape, own)});
  }
  return blocks;
}

}  // namespace pareprop::testing
