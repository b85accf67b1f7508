#include "pareprop/ops/table_products.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"

namespace pareprop {
namespace {

using at::Tensor;

struct Guessing {
  std::vector<Tensor> weights;  // x, table, bias
  Tensor targets;

  Guessing(std::int64_t rows, std::int64_t words, std::int64_t width, at::ScalarType type) {
    at::manual_seed(7);
    weights = {at::randn({rows, width}, type), at::randn({words, width}, type),
               at::randn({words}, type)};
    for (Tensor& weight : weights) weight.requires_grad_();
    targets = at::randint(words, {rows}, at::kLong);
  }

  Tensor loss(Precision precision = Precision::fp32) const {
    return table_loss(weights[0], weights[1], weights[2], targets, precision).loss;
  }
  // With torch's own operators, in doubles.
  Tensor expected_loss() const {
    const auto wide = [&](int i) { return weights[static_cast<std::size_t>(i)].to(at::kDouble); };
    return at::cross_entropy_loss(at::linear(wide(0), wide(1), wide(2)), targets)
        .to(weights[0].scalar_type());
  }
  std::vector<Tensor> gradients(const Tensor& of) const {
    auto all = torch::autograd::grad({of.mul(3)}, weights);
    all.push_back(of.detach());
    return all;
  }
};

// Words of less than a part, of one, and of several that do not come out even.
TEST(TableProducts, LossIsThatOfTorchsOperators) {
  for (const std::int64_t words : {5, 1024, 2500}) {
    const Guessing wide(9, words, 12, at::kDouble), narrow(9, words, 12, at::kFloat);
    EXPECT_LT(max_relative_error(wide.gradients(wide.expected_loss()), wide.gradients(wide.loss())),
              1e-12)
        << words;
    EXPECT_LT(max_relative_error(narrow.gradients(narrow.expected_loss()),
                                 narrow.gradients(narrow.loss())),
              1e-5)
        << words;
  }
}

TEST(TableProducts, LossIsNearThatInBf16) {
  const Guessing guessing(33, 2500, 16, at::kFloat);
  const auto expected = guessing.gradients(guessing.expected_loss());
  const auto found = guessing.gradients(guessing.loss(Precision::bf16));
  EXPECT_LT(max_relative_error(expected, found), 0.03);
  EXPECT_FALSE(bit_identical(guessing.gradients(guessing.loss()), found));
}

TEST(TableProducts, LossGivesTheScores) {
  const Guessing guessing(4, 30, 6, at::kFloat);
  const auto& [x, table, bias] =
      std::tie(guessing.weights[0], guessing.weights[1], guessing.weights[2]);
  const Tensor scores = table_loss(x, table, bias, guessing.targets).scores;
  EXPECT_FALSE(scores.requires_grad());
  EXPECT_TRUE(scores.equal(table_products(x, table, bias)));
}

TEST(TableProducts, HaveTheSameBitsOnAnyNumberOfThreads) {
  const Guessing guessing(40, 60'000, 8, at::kFloat);
  const auto expected = guessing.gradients(guessing.loss());
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(bit_identical(expected, guessing.gradients(guessing.loss()))) << count;
  }
  at::set_num_threads(threads);
}

TEST(TableProducts, LossTakesTheScoresAndLittleMore) {
  memory::install_caching_allocator();
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const Guessing guessing(160, 50'000, 16, at::kFloat);
    const double scores = 160 * 50'000 * sizeof(float);
    const double of_weights = static_cast<double>(
        guessing.weights[0].nbytes() + guessing.weights[1].nbytes() + guessing.weights[2].nbytes());
    memory::reset_peaks();
    const std::int64_t before = memory::usage().total_live;
    guessing.loss(precision).backward();
    EXPECT_LT(static_cast<double>(memory::usage().total_peak - before), 1.2 * scores + of_weights);
  }
}

TEST(TableProducts, LossIsDifferentiatedAgainWhereTheGraphIsKept) {
  const Guessing guessing(3, 1500, 5, at::kFloat);
  const Tensor loss = guessing.loss();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = guessing.weights[1].grad().clone();
  loss.backward();
  EXPECT_TRUE(guessing.weights[1].grad().equal(once.mul(2)));
}

TEST(TableProducts, AFrozenTableLetsGradientsThrough) {
  Guessing guessing(3, 1500, 5, at::kDouble);
  const auto expected = guessing.gradients(guessing.expected_loss());
  guessing.weights[1].requires_grad_(false);
  const auto found =
      torch::autograd::grad({guessing.loss().mul(3)}, {guessing.weights[0], guessing.weights[2]});
  EXPECT_TRUE(at::allclose(found[0], expected[0]));
  EXPECT_TRUE(at::allclose(found[1], expected[2]));
}

TEST(TableProducts, LossOfNoRowsIsNotANumberAndWordsThatAreNoneAreRefused) {
  const Guessing guessing(2, 9, 5, at::kFloat);
  const auto& [x, table, bias] =
      std::tie(guessing.weights[0], guessing.weights[1], guessing.weights[2]);
  EXPECT_TRUE(std::isnan(
      table_loss(at::zeros({0, 5}), table, bias, at::empty({0}, at::kLong)).loss.item<float>()));
  EXPECT_ANY_THROW(table_loss(x, table, bias, at::zeros({2}, at::kLong).fill_(9)));
  EXPECT_ANY_THROW(table_loss(x, table, bias, at::zeros({2}, at::kLong).fill_(-100)));
}

}  // namespace
}  // namespace pareprop
