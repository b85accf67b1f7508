#include "pareprop/ops/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

struct Operands {
  at::Tensor x, w, b;
  explicit Operands(at::ScalarType dtype, bool bias = true)
      : x(at::randn({3, 5, 8}, dtype).requires_grad_(true)),
        w(at::randn({6, 8}, dtype).requires_grad_(true)),
        b(bias ? at::randn({6}, dtype).requires_grad_(true) : at::Tensor()) {}
  std::vector<at::Tensor> all() const {
    return b.defined() ? std::vector<at::Tensor>{x, w, b} : std::vector<at::Tensor>{x, w};
  }
};

TEST(Linear, EqualsTorchsLinear) {
  for (bool bias : {true, false}) {
    const Operands o(at::kDouble, bias);
    const auto y = linear(o.x, o.w, o.b), expected = at::linear(o.x, o.w, o.b);
    EXPECT_TRUE(y.equal(expected));
    const auto weights = at::randn(y.sizes(), at::kDouble);
    EXPECT_LE(max_relative_error(torch::autograd::grad({expected.mul(weights).sum()}, o.all()),
                                 torch::autograd::grad({y.mul(weights).sum()}, o.all())),
              1e-14);
  }
}

TEST(Linear, TakesNonContiguousOperandsAndOneDimension) {
  const Operands o(at::kDouble);
  const auto x = at::randn({8, 5, 3}, at::kDouble).requires_grad_(true);
  EXPECT_TRUE(
      linear(x.permute({2, 1, 0}), o.w, o.b).equal(at::linear(x.permute({2, 1, 0}), o.w, o.b)));
  torch::autograd::grad({linear(x.permute({2, 1, 0}), o.w, o.b).sum()}, {x});
  const auto v = at::randn({8}, at::kDouble);
  EXPECT_TRUE(linear(v, o.w, o.b).allclose(at::linear(v, o.w, o.b)));
}

TEST(Linear, WithoutItsOutputGradientsAreTheSame) {
  const Operands o(at::kDouble);
  const auto weights = at::randn({3, 5, 6}, at::kDouble);
  const auto y = linear(o.x, o.w, o.b), skipped = linear(o.x, o.w, o.b, /*output_needed=*/false);
  EXPECT_EQ(skipped.sizes(), y.sizes());
  EXPECT_TRUE(bit_identical(torch::autograd::grad({y}, o.all(), {weights}),
                            torch::autograd::grad({skipped}, o.all(), {weights})));
}

TEST(Linear, DefersWeightGradientsOfLeavesOnly) {
  const Operands o(at::kDouble);
  const auto expected = torch::autograd::grad({linear(o.x, o.w, o.b).sin().sum()}, o.all());
  DeferredGradients queue;
  {
    const auto y = linear(o.x, o.w, o.b).sin().sum();
    DeferScope scope(&queue);
    const auto now =
        torch::autograd::grad({y}, o.all(), {}, std::nullopt, false, /*allow_unused=*/true);
    EXPECT_TRUE(now[0].equal(expected[0]));
    EXPECT_FALSE(now[1].defined());
    EXPECT_FALSE(now[2].defined());
  }
  const auto later = queue.run();
  ASSERT_EQ(later.size(), 2u);
  EXPECT_TRUE(later[0].first.is_same(o.w));
  EXPECT_TRUE(later[0].second.equal(expected[1]));
  EXPECT_TRUE(later[1].first.is_same(o.b));
  EXPECT_TRUE(later[1].second.equal(expected[2]));
  EXPECT_TRUE(queue.empty());
  // A computed weight carries its gradient on, and cannot wait.
  DeferScope scope(&queue);
  const auto y = linear(o.x, o.w.mul(2.0), o.b.detach()).sum();
  EXPECT_TRUE(torch::autograd::grad({y}, {o.w})[0].defined());
  EXPECT_TRUE(queue.empty());
}

TEST(Linear, FollowsAutocastAndReturnsGradientsInTheOperandsType) {
  const Operands o(at::kFloat);
  AutocastScope scope(at::kCPU, {.enabled = true});
  const auto y = linear(o.x, o.w, o.b), expected = at::linear(o.x, o.w, o.b);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(y.equal(expected));
  const auto gradients = torch::autograd::grad({y.to(at::kFloat).sum()}, o.all());
  for (const auto& g : gradients) EXPECT_EQ(g.scalar_type(), at::kFloat);
  EXPECT_LE(max_relative_error(torch::autograd::grad({expected.to(at::kFloat).sum()}, o.all()),
                               gradients),
            1e-2);
}

TEST(AutocastScope, RestoresWhatWasThere) {
  const auto before = AutocastState::of_this_thread(at::kCPU, Precision::fp32);
  {
    AutocastScope scope(at::kCPU, {.enabled = true, .dtype = at::kBFloat16});
    EXPECT_TRUE(AutocastState::of_this_thread(at::kCPU, Precision::fp32).enabled);
  }
  EXPECT_EQ(AutocastState::of_this_thread(at::kCPU, Precision::fp32).enabled, before.enabled);
  EXPECT_TRUE(AutocastState::of_this_thread(at::kCPU, Precision::bf16).enabled);
}

TEST(Precision, NamesAreReadBack) {
  for (auto p : {Precision::fp32, Precision::bf16, Precision::fp64})
    EXPECT_EQ(parse_precision(name(p)), p);
  EXPECT_THROW(parse_precision("fp16"), std::invalid_argument);
}

TEST(Compare, ARatioToTheLargestGuardsZeroGradients) {
  const auto big = at::full({4}, 1.0), zero = at::zeros({4});
  EXPECT_NEAR(max_relative_error({big, zero}, {big, zero.add(1e-6)}), 1e-2, 1e-6);
  EXPECT_EQ(max_relative_error({big}, {big}), 0.0);
  EXPECT_TRUE(std::isinf(max_relative_error({big}, {at::Tensor()})));
  EXPECT_TRUE(std::isinf(max_relative_error({big}, {big.mul(NAN)})));
  EXPECT_TRUE(std::isinf(max_relative_error({big}, {at::ones({2})})));
  EXPECT_FALSE(bit_identical({big}, {big.add(1e-7)}));
}

}  // namespace
}  // namespace pareprop
