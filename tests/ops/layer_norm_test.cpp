#include "pareprop/ops/layer_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/kernels/row_kernels.h"
#include "pareprop/ops/precision.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensors inputs(std::int64_t rows, std::int64_t width, at::ScalarType dtype) {
  const auto options = at::TensorOptions(dtype);
  Tensors all{at::randn({rows, width}, options).mul_(3).add_(5), at::randn({width}, options),
              at::randn({width}, options)};
  for (Tensor& t : all) t.set_requires_grad(true);
  return all;
}

Tensor ours(const Tensors& in) { return layer_norm(in[0], in[1], in[2], 1e-5); }
Tensor theirs(const Tensors& in) {
  return at::layer_norm(in[0], in[1].sizes(), in[1], in[2], 1e-5, false);
}

TEST(LayerNorm, PassesGradcheck) {
  at::manual_seed(1);
  EXPECT_LT(gradient_error(ours, inputs(5, 7, at::kDouble)), 1e-7);
}

TEST(LayerNorm, EqualsTorchs) {
  at::manual_seed(2);
  for (const std::int64_t width : {5, 15, 16, 17, 64, 129, 768}) {
    const Tensors wide = inputs(67, width, at::kDouble), narrow = inputs(67, width, at::kFloat);
    EXPECT_LT(max_relative_error(gradients_of(theirs, wide), gradients_of(ours, wide)), 1e-13)
        << width;
    EXPECT_LT(max_relative_error(gradients_of(theirs, narrow), gradients_of(ours, narrow)), 3e-6)
        << width;
  }
}

TEST(LayerNorm, HasTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(3);
  const Tensors in = inputs(1001, 96, at::kFloat);
  const auto expected = gradients_of(ours, in);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(bit_identical(expected, gradients_of(ours, in))) << count;
  }
  at::set_num_threads(threads);
  c10::AutoGradMode no_graph(false);
  EXPECT_TRUE(bit_identical({expected.back()}, {ours(in)}));
}

TEST(LayerNorm, CastsToTheTypeOfAutocast) {
  at::manual_seed(4);
  const Tensors in = inputs(40, 100, at::kFloat);
  const auto expected = gradients_of(theirs, in);
  AutocastScope scope(c10::DeviceType::CPU, {true, at::kBFloat16});
  EXPECT_EQ(ours(in).scalar_type(), at::kBFloat16);
  const auto got = gradients_of([](const Tensors& t) { return ours(t).to(at::kFloat); }, in);
  EXPECT_EQ(got[0].scalar_type(), at::kFloat);
  EXPECT_LT(max_relative_error(expected, got), 1e-2);
}

TEST(LayerNorm, GivesGradientsToWhatIsNotFrozen) {
  const Tensors in = inputs(6, 8, at::kDouble);
  layer_norm(in[0].detach(), in[1], in[2].detach(), 1e-6).sum().backward();
  EXPECT_TRUE(in[1].grad().defined());
  EXPECT_FALSE(in[0].grad().defined() || in[2].grad().defined());
}

TEST(RowKernels, SayWhatTheyAreBuiltFor) {
  const std::string name = kernel_capability();
  EXPECT_TRUE(name == "DEFAULT" || name == "AVX2" || name == "AVX512") << name;
}

}  // namespace
}  // namespace pareprop
