#include "pareprop/data/counter_random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace pareprop::data {
namespace {

TEST(CounterRandom, IsAFunctionOfItsKey) {
  CounterRandom a{1, 2, 3}, b{1, 2, 3};
  for (int i = 0; i < 100; ++i) ASSERT_EQ(a.next(), b.next());
}

TEST(CounterRandom, DiffersWithEveryPartOrderAndLengthOfTheKey) {
  std::set<std::uint64_t> first;
  first.insert(CounterRandom{}.next());
  first.insert(CounterRandom{0}.next());
  first.insert(CounterRandom{0, 0}.next());
  first.insert(CounterRandom{1, 0}.next());
  first.insert(CounterRandom{0, 1}.next());
  first.insert(CounterRandom{1}.next());
  first.insert(CounterRandom{0, 0, 1}.next());
  EXPECT_EQ(first.size(), 7u);
}

// A run that is resumed with a later version depends on it. Computed by an independent program.
TEST(CounterRandom, DrawsTheSameNumbersForEver) {
  CounterRandom random{42, 7};
  CounterRandom again{42, 7};
  EXPECT_EQ(random.next(), 0x9bd353fd7c84f909ULL);
  EXPECT_EQ(random.next(), 0x723c5f9105af73c4ULL);
  EXPECT_EQ(again.uniform(), static_cast<double>(0x9bd353fd7c84f909ULL >> 11) * 0x1p-53);
  EXPECT_EQ(mix64(1), 0x5692161d100b05e5ULL);
}

TEST(CounterRandom, UniformAndNormalHaveTheirMoments) {
  CounterRandom random{5};
  double sum = 0, squares = 0, normal = 0, normal_squares = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u, squares += u * u;
    const double n = random.normal();
    ASSERT_TRUE(std::isfinite(n));
    normal += n, normal_squares += n * n;
  }
  // Five standard errors.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.2887 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 5 * 0.2981 / std::sqrt(kDraws));
  EXPECT_NEAR(normal / kDraws, 0.0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(normal_squares / kDraws, 1.0, 5 * std::sqrt(2.0 / kDraws));
}

TEST(CounterRandom, BelowIsEvenlySpread) {
  CounterRandom random{6};
  std::array<int, 7> count{};
  for (int i = 0; i < 70000; ++i) ++count.at(random.below(7));
  for (const int n : count) EXPECT_NEAR(n, 10000, 5 * std::sqrt(10000 * 6.0 / 7));
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_EQ(random.below(0), 0u);
}

TEST(CounterRandom, BelowIsUnbiasedForLargeRanges) {
  CounterRandom random{7};
  constexpr std::uint64_t kRange = 3ULL << 62;  // 3/4 of 2^64: a plain remainder favours the low
  int low = 0;
  for (int i = 0; i < 30000; ++i) low += random.below(kRange) < (1ULL << 62);
  EXPECT_NEAR(low, 10000, 5 * std::sqrt(30000 * 2.0 / 9));
}

}  // namespace
}  // namespace pareprop::data
