#include "pareprop/draw/thinned.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace pareprop::draw {
namespace {

TEST(Thinned, FewPointsStay) {
  const std::vector<Point> line = {{0.1, 5}, {0.2, 1}, {0.3, 9}, {0.4, 4}, {7.0, 2}};
  EXPECT_EQ(thinned(line).size(), line.size());
  EXPECT_TRUE(thinned({}).empty());
}

TEST(Thinned, EveryColumnKeepsEndsAndExtremesInOrder) {
  constexpr int kPoints = 20000, kColumns = 100;
  std::vector<Point> line;
  for (int i = 0; i < kPoints; ++i) {
    line.push_back({i * static_cast<double>(kColumns) / kPoints, std::sin(i * 12.9898) * 43.0});
  }
  const std::vector<Point> thin = thinned(line);
  EXPECT_LE(thin.size(), 4U * kColumns);
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end(),
                             [](const Point& a, const Point& b) { return a.x < b.x; }));
  const auto in_column = [](const std::vector<Point>& points, int column) {
    std::vector<double> values;
    for (const Point& point : points) {
      if (static_cast<int>(std::floor(point.x)) == column) values.push_back(point.y);
    }
    return values;
  };
  for (int column = 0; column < kColumns; ++column) {
    const std::vector<double> all = in_column(line, column), kept = in_column(thin, column);
    ASSERT_FALSE(kept.empty());
    EXPECT_EQ(kept.front(), all.front());
    EXPECT_EQ(kept.back(), all.back());
    EXPECT_EQ(*std::min_element(kept.begin(), kept.end()),
              *std::min_element(all.begin(), all.end()));
    EXPECT_EQ(*std::max_element(kept.begin(), kept.end()),
              *std::max_element(all.begin(), all.end()));
  }
}

}  // namespace
}  // namespace pareprop::draw
