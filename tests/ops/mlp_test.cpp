#include "pareprop/ops/mlp.h"

#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/tape_scopes.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensors inputs(at::IntArrayRef leading, std::int64_t width, std::int64_t hidden,
               at::ScalarType dtype) {
  auto sizes = leading.vec();
  sizes.push_back(width);
  const auto options = at::TensorOptions(dtype);
  Tensors all{at::randn(sizes, options), at::randn({hidden, width}, options).div_(4),
              at::randn({hidden}, options), at::randn({width, hidden}, options).div_(4),
              at::randn({width}, options)};
  for (Tensor& t : all) t.set_requires_grad(true);
  return all;
}

Tensor fused(const Tensors& in) { return mlp(in[0], in[1], in[2], in[3], in[4]); }
Tensor composed(const Tensors& in) {
  return at::linear(at::gelu(at::linear(in[0], in[1], in[2])), in[3], in[4]);
}

TEST(Mlp, GivesTheSameBitsWhenItUsesUpItsTape) {
  at::manual_seed(9);
  const Tensors in = inputs({2, 600}, 8, 32, at::kFloat);
  const Tensors kept = gradients_of(fused, in);
  const ConsumeScope consume(true);
  EXPECT_TRUE(same_bits(gradients_of(fused, in), kept));
}

TEST(Mlp, PassesGradcheck) {
  at::manual_seed(1);
  EXPECT_LT(gradient_error(fused, inputs({2, 3}, 5, 7, at::kDouble)), 1e-7);
}

TEST(Mlp, EqualsItsComposition) {
  at::manual_seed(2);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const Tensors in = inputs({3, 50}, 33, 131, dtype);
    EXPECT_LT(max_relative_error(gradients_of(composed, in), gradients_of(fused, in)),
              dtype == at::kFloat ? 2e-6 : 1e-14);
  }
}

TEST(Mlp, HoldsFarFromZero) {
  const auto options = at::TensorOptions(at::kFloat);
  Tensors in{at::randn({64, 1}, options).mul_(20), at::randn({40, 1}, options),
             at::randn({40}, options), at::randn({1, 40}, options), at::randn({1}, options)};
  for (Tensor& t : in) t.set_requires_grad(true);
  EXPECT_LT(max_relative_error(gradients_of(composed, in), gradients_of(fused, in)), 2e-6);
}

TEST(Mlp, HasTheSameBitsWithAndWithoutGraphAndOnAnyNumberOfThreads) {
  at::manual_seed(3);
  const Tensors in = inputs({5, 201}, 48, 100, at::kFloat);
  const auto expected = gradients_of(fused, in);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    const auto got = gradients_of(fused, in);
    // Products of matrices are the BLAS's; biases are summed by the op.
    EXPECT_TRUE(bit_identical({expected[2], expected[4]}, {got[2], got[4]})) << count;
  }
  at::set_num_threads(threads);
  c10::AutoGradMode no_graph(false);
  EXPECT_TRUE(bit_identical({expected.back()}, {fused(in)}));
}

TEST(Mlp, DefersItsWeightGradients) {
  at::manual_seed(4);
  const Tensors in = inputs({9}, 6, 8, at::kFloat);
  const auto expected = gradients_of(fused, in);
  DeferredGradients queue;
  {
    DeferScope scope(&queue);
    const Tensor y = fused(in);
    // As a backward pass does: on this thread, so that the scope is in force.
    y.backward(at::ones_like(y));
  }
  for (int i = 1; i < 5; ++i) EXPECT_FALSE(in[static_cast<std::size_t>(i)].grad().defined()) << i;
  EXPECT_TRUE(in[0].grad().defined());
  EXPECT_EQ(queue.run().size(), 4U);
}

TEST(Mlp, SkipsAnOutputThatIsNotNeeded) {
  at::manual_seed(5);
  const Tensors in = inputs({9}, 6, 8, at::kFloat);
  const auto expected = gradients_of(fused, in);
  auto got =
      gradients_of([](const Tensors& t) { return mlp(t[0], t[1], t[2], t[3], t[4], false); }, in);
  EXPECT_EQ(got.back().sizes(), expected.back().sizes());
  got.back() = expected.back();
  EXPECT_TRUE(bit_identical(expected, got));
}

TEST(Mlp, ComputesInTheTypeOfAutocast) {
  at::manual_seed(6);
  const Tensors in = inputs({4, 50}, 32, 128, at::kFloat);
  const auto expected = gradients_of(composed, in);
  std::vector<Tensor> got;
  {
    AutocastScope scope(c10::DeviceType::CPU, {true, at::kBFloat16});
    got = gradients_of([](const Tensors& t) { return fused(t).to(at::kFloat); }, in);
    EXPECT_EQ(fused(in).scalar_type(), at::kBFloat16);
  }
  for (std::size_t i = 0; i + 1 < got.size(); ++i) EXPECT_EQ(got[i].scalar_type(), at::kFloat);
  EXPECT_LT(max_relative_error(expected, got), 2e-2);
}

}  // namespace
}  // namespace pareprop
