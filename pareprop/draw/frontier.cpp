#include "pareprop/draw/frontier.h"

#include <algorithm>
#include <cmath>

namespace pareprop::draw {

std::vector<Point> frontier(std::vector<Point> points) {
  std::erase_if(points, [](const Point& p) { return !std::isfinite(p.x) || !std::isfinite(p.y); });
  std::sort(points.begin(), points.end(),
            [](const Point& a, const Point& b) { return a.x != b.x ? a.x < b.x : a.y > b.y; });
  std::vector<Point> best;
  for (const Point& point : points) {
    if (best.empty() || point.y > best.back().y) best.push_back(point);
  }
  return best;
}

}  // namespace pareprop::draw
