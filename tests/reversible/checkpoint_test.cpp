#include "pareprop/reversible/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"
#include "pareprop/ops/random_stream.h"
#include "tests/reversible/test_branches.h"

namespace pareprop {
namespace {

using ::testing::HasSubstr;
using testing::random_tensor;

TEST(Checkpoint, GradientsEqualThoseWithoutIt) {
  const auto module = std::make_shared<testing::TestAttention>(
      testing::BranchShape{.dropout = 0.3, .drop_path = 0.3}, 1);
  const Branch branch(module);
  const at::Tensor x = testing::small_input();
  const at::Tensor bias = random_tensor({2, 4, 4}, at::kDouble, 9).requires_grad_(true);
  auto wanted = module->parameters();
  wanted.push_back(x);
  wanted.push_back(bias);
  for (std::uint64_t key : {1, 2, 3}) {
    RandomStream random(key);
    at::Tensor plain;
    {
      RandomScope scope(random);
      const std::vector<at::Tensor> extras{bias};
      plain = module->forward(x, {extras});
    }
    const at::Tensor y = checkpoint(branch, x, {.extras = {bias}, .random_key = key});
    EXPECT_TRUE(plain.equal(y));
    EXPECT_TRUE(bit_identical(torch::autograd::grad({plain.sin().sum()}, wanted),
                              torch::autograd::grad({y.sin().sum()}, wanted)));
  }
}

TEST(Checkpoint, OutputMayHaveAnotherShapeAndCallsMayNest) {
  const at::Tensor w = random_tensor({8, 3}, at::kDouble, 2).requires_grad_(true);
  const Branch inner([w](const at::Tensor& x, const BranchCall&) { return x.matmul(w).tanh(); },
                     {w});
  const Branch outer(
      [inner](const at::Tensor& x, const BranchCall&) { return checkpoint(inner, x).exp(); }, {w});
  const at::Tensor x = testing::small_input();
  const at::Tensor y = checkpoint(outer, x);
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 4, 3}));
  EXPECT_LE(max_relative_error(torch::autograd::grad({x.matmul(w).tanh().exp().sum()}, {x, w}),
                               torch::autograd::grad({y.sum()}, {x, w})),
            1e-12);
}

TEST(Checkpoint, Bf16IsReplayedAndEveryWeightGetsItsGradient) {
  for (bool plain : {false, true}) {
    const auto module = std::make_shared<testing::TestMlp>(
        testing::BranchShape{.plain_linear = plain, .dtype = at::kFloat}, 1);
    const at::Tensor x = random_tensor({2, 4, 8}, at::kFloat, 7).requires_grad_(true);
    const at::Tensor y = checkpoint(Branch(module), x, {.precision = Precision::bf16});
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    for (const auto& g : torch::autograd::grad({y.sum()}, module->parameters())) {
      EXPECT_EQ(g.scalar_type(), at::kFloat);
      EXPECT_GT(g.abs().sum().item<double>(), 0.0);
    }
  }
}

TEST(Checkpoint, KeepsOnlyItsInput) {
  memory::install_caching_allocator();
  const testing::BranchShape shape{.width = 64};
  const auto module = std::make_shared<testing::TestMlp>(shape, 1);
  const at::Tensor x = random_tensor({4, 32, 64}, at::kDouble, 7).requires_grad_(true);
  const auto before = memory::usage().total_live;
  const at::Tensor y = checkpoint(Branch(module), x);
  EXPECT_LE(memory::usage().total_live - before, static_cast<std::int64_t>(y.nbytes()) + 256);
}

TEST(Checkpoint, HooksRunOnceAndRetainGraphWorks) {
  const auto module = std::make_shared<testing::TestMlp>(testing::BranchShape{}, 1);
  int calls = 0;
  module->parameters()[0].register_hook([&](const at::Tensor& g) {
    ++calls;
    return g;
  });
  const at::Tensor x = testing::small_input();
  const at::Tensor y = checkpoint(Branch(module), x);
  const auto first = torch::autograd::grad({y.sum()}, module->parameters(), {}, true);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(bit_identical(first, torch::autograd::grad({y.sum()}, module->parameters())));
}

TEST(Checkpoint, ErrorsAreClear) {
  const at::Tensor used = random_tensor({8}, at::kDouble, 1).requires_grad_(true);
  const at::Tensor x = testing::small_input();
  auto error = [&](const Branch& branch, auto between) -> std::string {
    try {
      const at::Tensor y = checkpoint(branch, x);
      between();
      y.sum().backward();
    } catch (const std::exception& e) {
      return e.what();
    }
    return "no error";
  };
  auto nothing = [] {};
  const auto scale = [used](const at::Tensor& t, const BranchCall&) { return t.mul(used); };
  EXPECT_THAT(error(Branch(scale, {}), nothing), HasSubstr("would be lost"));
  EXPECT_THAT(error(Branch(scale, {used, random_tensor({1}, at::kDouble, 2).requires_grad_(true)}),
                    nothing),
              HasSubstr("'parameter 1' got no gradient"));
  EXPECT_THAT(error(Branch(scale, {used}), [&] { used.detach().add_(1.0); }),
              HasSubstr("changed in place"));
  EXPECT_EQ(error(Branch(scale, {used}), nothing), "no error");
  EXPECT_THROW(checkpoint(Branch(scale, {used}), at::Tensor()), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
