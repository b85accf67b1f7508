#include "pareprop/ops/cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/ops/compare.h"
#include "tests/ops/gradcheck.h"

namespace pareprop {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensors random_scores(std::int64_t rows, std::int64_t classes, at::ScalarType dtype) {
  return {at::randn({rows, classes}, dtype).mul_(5).set_requires_grad(true)};
}

Tensor random_classes(std::int64_t rows, std::int64_t classes) {
  return at::randint(classes, {rows}, at::kLong);
}

// As torch takes them too, and, as labels that were made smoother, not of sum 1.
Tensor random_shares(std::int64_t rows, std::int64_t classes, at::ScalarType dtype) {
  return at::rand({rows, classes}, dtype);
}

TEST(CrossEntropy, PassesGradcheck) {
  at::manual_seed(1);
  for (const Tensor& targets : {random_classes(4, 7), random_shares(4, 7, at::kDouble)}) {
    const auto loss = [&](const Tensors& in) { return cross_entropy(in[0], targets); };
    EXPECT_LT(gradient_error(loss, random_scores(4, 7, at::kDouble)), 1e-7);
  }
}

struct Scores {
  std::int64_t rows, classes;
  at::ScalarType dtype;
  double tolerance;
};

// Rows of several parts, of one, longer than a part, and a single class. In float torch's sums of
// exponentials are off themselves, by 5e-6 of 40,000 without vectors.
TEST(CrossEntropy, EqualsThatOfTorchInDoubles) {
  at::manual_seed(2);
  for (const auto& [rows, classes, dtype, tolerance] :
       {Scores{70, 40'000, at::kFloat, 2e-5}, Scores{70, 40'000, at::kDouble, 1e-12},
        Scores{5, 10, at::kFloat, 5e-6}, Scores{5, 10, at::kDouble, 1e-12},
        Scores{2, 1'100'000, at::kDouble, 1e-12}, Scores{3, 1, at::kFloat, 5e-6}}) {
    const Tensors in = random_scores(rows, classes, dtype);
    for (const Tensor& targets :
         {random_classes(rows, classes), random_shares(rows, classes, dtype)}) {
      const auto ours = [&](const Tensors& t) { return cross_entropy(t[0], targets).mul(3); };
      const auto torchs = [&](const Tensors& t) {
        const Tensor wide = targets.is_floating_point() ? targets.to(at::kDouble) : targets;
        return at::cross_entropy_loss(t[0].to(at::kDouble), wide).mul(3).to(t[0].scalar_type());
      };
      EXPECT_LT(max_relative_error(gradients_of(torchs, in), gradients_of(ours, in)), tolerance)
          << rows << " x " << classes;
    }
  }
}

TEST(CrossEntropy, HasTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(3);
  const Tensors in = random_scores(9, 300'000, at::kFloat);
  const Tensor targets = random_classes(9, 300'000);
  const auto loss = [&](const Tensors& t) { return cross_entropy(t[0], targets); };
  const auto expected = gradients_of(loss, in);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    EXPECT_TRUE(bit_identical(expected, gradients_of(loss, in))) << count;
  }
  at::set_num_threads(threads);
  c10::AutoGradMode no_graph(false);
  EXPECT_TRUE(bit_identical({expected.back()}, {loss(in)}));
}

TEST(CrossEntropy, TakesLittleBesideItsGradient) {
  memory::install_caching_allocator();
  const Tensors in = random_scores(160, 50'000, at::kFloat);
  const Tensor targets = random_classes(160, 50'000);
  memory::reset_peaks();
  const std::int64_t before = memory::usage().total_live;
  cross_entropy(in[0], targets).backward();
  EXPECT_LT(static_cast<double>(memory::usage().total_peak - before),
            1.01 * static_cast<double>(in[0].nbytes()));
}

TEST(CrossEntropy, IsDifferentiatedTwiceWhereTheGraphIsKept) {
  at::manual_seed(4);
  const Tensors in = random_scores(3, 5, at::kFloat);
  const Tensor loss = cross_entropy(in[0], random_classes(3, 5));
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = in[0].grad().clone();
  loss.backward();
  EXPECT_TRUE(in[0].grad().equal(once.mul(2)));
}

TEST(CrossEntropy, OfNoRowsIsNotANumber) {
  const Tensor none = at::zeros({0, 5});
  EXPECT_TRUE(std::isnan(cross_entropy(none, at::empty({0}, at::kLong)).item<float>()));
}

TEST(CrossEntropy, RefusesTargetsThatAreNotOfTheScores) {
  const Tensor scores = at::zeros({2, 5});
  EXPECT_THROW(cross_entropy(scores, at::zeros({3}, at::kLong)), std::invalid_argument);
  EXPECT_THROW(cross_entropy(scores, at::zeros({2})), std::invalid_argument);
  EXPECT_THROW(cross_entropy(scores, at::zeros({2, 4})), std::invalid_argument);
  EXPECT_THROW(cross_entropy(scores.view({10}), at::zeros({10}, at::kLong)), std::invalid_argument);
  EXPECT_ANY_THROW(cross_entropy(scores, at::zeros({2}, at::kLong).fill_(5)));
}

}  // namespace
}  // namespace pareprop
