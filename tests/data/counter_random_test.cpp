#include "pareprop/data/counter_random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

#include "pareprop/data/shuffle.h"

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

// Saved data orders and checkpoints depend on these numbers.
TEST(CounterRandom, DrawsTheSameNumbersForEver) {
  CounterRandom random{42, 7};
  CounterRandom again{42, 7};
  EXPECT_EQ(random.next() >> 11, static_cast<std::uint64_t>(again.uniform() * 0x1p53));
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

// Three quarters of all draws are drawn again or not, by halves of the range.
TEST(CounterRandom, BelowIsUnbiasedForLargeRanges) {
  CounterRandom random{7};
  constexpr std::uint64_t kRange = 3ULL << 62;  // 3/4 of 2^64: a plain remainder favours the low
  int low = 0;
  for (int i = 0; i < 30000; ++i) low += random.below(kRange) < (1ULL << 62);
  EXPECT_NEAR(low, 10000, 5 * std::sqrt(30000 * 2.0 / 9));
}

TEST(Shuffle, IsAPermutationOfAnySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const Shuffle shuffle(size, size * 17);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < size; ++i) {
      const std::uint64_t place = shuffle[i];
      ASSERT_LT(place, size);
      seen.insert(place);
    }
    ASSERT_EQ(seen.size(), size);
  }
}

TEST(Shuffle, EveryNumberComesToEveryPlaceAsOften) {
  std::array<std::array<int, 5>, 5> count{};
  for (std::uint64_t key = 0; key < 20000; ++key) {
    const Shuffle shuffle(5, mix64(key));
    for (std::uint64_t i = 0; i < 5; ++i) ++count.at(i).at(shuffle[i]);
  }
  for (const auto& row : count) {
    for (const int n : row) EXPECT_NEAR(n, 4000, 5 * std::sqrt(4000 * 0.8));
  }
}

TEST(Shuffle, NeighboursAreStrangers) {
  const Shuffle shuffle(100000, 3);
  double distance = 0;
  for (std::uint64_t i = 0; i + 1 < 100000; ++i) {
    distance += std::abs(static_cast<double>(shuffle[i]) - static_cast<double>(shuffle[i + 1]));
  }
  EXPECT_NEAR(distance / 99999, 100000.0 / 3, 500);  // that of two independent numbers
}

}  // namespace
}  // namespace pareprop::data
