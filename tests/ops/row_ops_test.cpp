#include "pareprop/ops/row_ops.h"

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

namespace pareprop {
namespace {

using at::Tensor;

TEST(AddScaled, IsTheSumInTheTypeOfTheFirst) {
  at::manual_seed(1);
  // Lengths with and without an end that fills no vector.
  for (const std::int64_t count : {1, 31, 64, 1000, 50001}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const Tensor u = at::randn({count}), f = at::randn({count}).to(type);
      for (const double factor : {1.0, -1.0}) {
        const Tensor expected = u.add(f.to(at::kFloat), factor);
        EXPECT_TRUE(add_scaled(u, f, factor, false).equal(expected)) << count;
        Tensor over = u.clone();
        const Tensor sum = add_scaled(over, f, factor, true);
        EXPECT_TRUE(sum.is_same(over) && sum.equal(expected)) << count;
      }
    }
  }
}

TEST(AddScaled, OfWholeNumbersRoundsHalvesToEvenAndIsUndone) {
  const double factor = 1 << 20;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensor u = at::randn({1001}).mul(1e8).to(at::kInt), f = at::randn({1001}).to(type);
    const Tensor there = add_scaled(u, f, factor, false);
    const Tensor change = f.to(at::kFloat).mul(factor).round().to(at::kInt);
    EXPECT_TRUE(there.equal(u.add(change)));
    EXPECT_TRUE(add_scaled(there, f, -factor, false).equal(u));
  }
  const Tensor zero = at::zeros({5}, at::kInt);
  const Tensor halves = at::tensor({0.5, 1.5, 2.5, -0.5, -1.5}, at::kFloat);
  EXPECT_TRUE(add_scaled(zero, halves, 1.0, false).equal(at::tensor({0, 2, 2, 0, -2}, at::kInt)));
}

TEST(AddScaled, OfWholeNumbersWrapsAround) {
  constexpr int kLargest = std::numeric_limits<int>::max();
  const Tensor u = at::tensor({kLargest, 7}, at::kInt), f = at::tensor({2.0, 2.0}, at::kFloat);
  const Tensor there = add_scaled(u, f, 1.0, false);
  EXPECT_EQ(there[0].item<int>(), std::numeric_limits<int>::min() + 1);
  EXPECT_TRUE(add_scaled(there, f, -1.0, false).equal(u));
}

TEST(AddScaled, TakesAnyLayoutAndDoubles) {
  const Tensor u = at::randn({6, 4}, at::kDouble), f = at::randn({4, 6}, at::kDouble).t();
  EXPECT_TRUE(add_scaled(u, f, -1.0, false).equal(u.sub(f)));
  const Tensor whole = u.mul(1e6).to(at::kLong);
  EXPECT_TRUE(add_scaled(whole, f, 1e6, false).equal(whole.add(f.mul(1e6).round().to(at::kLong))));
}

}  // namespace
}  // namespace pareprop
