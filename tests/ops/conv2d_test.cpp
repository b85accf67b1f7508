#include "pareprop/ops/conv2d.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "pareprop/ops/compare.h"
#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

struct Result {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

Result run(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
           const ConvShape& shape, bool torchs) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& t : {x, weight, bias}) {
    leaves.push_back(t.defined() ? t.detach().clone().requires_grad_(true) : at::Tensor());
  }
  at::Tensor y;
  if (torchs) {
    y = at::conv2d(leaves[0].to(weight.scalar_type()).permute({0, 3, 1, 2}), leaves[1], leaves[2],
                   {shape.stride, shape.stride}, {shape.padding, shape.padding}, {1, 1},
                   shape.groups)
            .permute({0, 2, 3, 1});
  } else {
    y = conv2d(leaves[0], leaves[1], leaves[2], shape);
  }
  y.mul(at::arange(y.numel(), y.options()).view(y.sizes()).cos()).sum().backward();
  Result result{y.detach(), {}};
  for (const at::Tensor& leaf : leaves) {
    if (leaf.defined()) result.gradients.push_back(leaf.grad());
  }
  return result;
}

TEST(Conv2d, EqualsTorchsWithItsGradients) {
  at::manual_seed(1);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const double tolerance = dtype == at::kFloat ? 1e-5 : 1e-12;
    const at::TensorOptions options(dtype);
    for (std::int64_t side : {1, 5, 8, 13}) {
      for (std::int64_t stride : {1, 2, 4}) {
        const at::Tensor x = at::randn({3, side, side, 6}, options);
        for (std::int64_t groups : {1, 6}) {
          const at::Tensor weight = at::randn({6, 6 / groups, 3, 3}, options);
          for (const at::Tensor& bias : {at::Tensor(), at::randn({6}, options)}) {
            const ConvShape shape{.stride = stride, .padding = 1, .groups = groups};
            const Result ours = run(x, weight, bias, shape, false);
            const Result theirs = run(x, weight, bias, shape, true);
            EXPECT_EQ(ours.output.sizes(), theirs.output.sizes());
            EXPECT_TRUE(ours.output.is_contiguous());
            EXPECT_LE(max_relative_error({theirs.output}, {ours.output}), tolerance);
            EXPECT_LE(max_relative_error(theirs.gradients, ours.gradients), tolerance);
          }
        }
      }
    }
  }
}

TEST(Conv2d, WidensBf16MapsAndIsNotTouchedByAutocast) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({2, 7, 7, 8}), weight = at::randn({8, 1, 3, 3});
  const ConvShape shape{.stride = 2, .padding = 1, .groups = 8};
  const Result plain = run(x, weight, {}, shape, false);
  const AutocastScope autocast(at::kCPU, {.enabled = true});
  const Result same = run(x, weight, {}, shape, false);
  EXPECT_TRUE(bit_identical({plain.output}, {same.output}));
  const Result rounded = run(x.to(at::kBFloat16), weight, {}, shape, false);
  EXPECT_EQ(rounded.output.scalar_type(), at::kFloat);
  EXPECT_EQ(rounded.gradients[0].scalar_type(), at::kBFloat16);
  const Result expected = run(x.to(at::kBFloat16).to(at::kFloat), weight, {}, shape, false);
  EXPECT_TRUE(bit_identical({expected.output, expected.gradients[1]},
                            {rounded.output, rounded.gradients[1]}));
}

TEST(Conv2d, HasItsShapesOnTheMetaDevice) {
  const at::TensorOptions meta(at::kMeta);
  const at::Tensor x = at::empty({2, 13, 13, 6}, meta).requires_grad_(true);
  const at::Tensor weight = at::empty({12, 3, 3, 3}, meta).requires_grad_(true);
  const at::Tensor bias = at::empty({12}, meta).requires_grad_(true);
  const at::Tensor y = conv2d(x, weight, bias, {.stride = 4, .padding = 1, .groups = 2});
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 4, 4, 12}));
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(weight.grad().sizes(), weight.sizes());
  EXPECT_EQ(bias.grad().sizes(), bias.sizes());
}

}  // namespace
}  // namespace pareprop
