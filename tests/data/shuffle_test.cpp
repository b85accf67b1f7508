#include "pareprop/data/shuffle.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>

namespace pareprop::data {
namespace {

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
