#include "pareprop/draw/frontier.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace pareprop::draw {
namespace {

bool beats(const Point& a, const Point& b) {
  return a.x <= b.x && a.y >= b.y && (a.x < b.x || a.y > b.y);
}

TEST(Frontier, IsWhatNoOtherBeats) {
  const std::uint32_t seed = 20;
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<Point> points(random() % 20);
    for (Point& point : points) point = {double(random() % 10), double(random() % 10)};
    const std::vector<Point> best = frontier(points);
    EXPECT_EQ(best.empty(), points.empty());
    for (std::size_t i = 1; i < best.size(); ++i) {
      EXPECT_LT(best[i - 1].x, best[i].x);
      EXPECT_LT(best[i - 1].y, best[i].y);
    }
    for (const Point& point : points) {
      const bool beaten = std::any_of(points.begin(), points.end(),
                                      [&](const Point& other) { return beats(other, point); });
      const bool there = std::any_of(best.begin(), best.end(), [&](const Point& other) {
        return other.x == point.x && other.y == point.y;
      });
      EXPECT_EQ(there, !beaten) << point.x << " " << point.y << ", seed " << seed;
    }
  }
}

TEST(Frontier, LeavesOutWhatIsNotFinite) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto best = frontier({{1, inf}, {nan, 3}, {2, 1}, {1, nan}, {-inf, 0}});
  ASSERT_EQ(best.size(), 1U);
  EXPECT_EQ(best[0].x, 2.0);
}

}  // namespace
}  // namespace pareprop::draw
