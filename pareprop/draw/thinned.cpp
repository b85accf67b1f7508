#include "pareprop/draw/thinned.h"

#include <algorithm>
#include <cmath>

namespace pareprop::draw {

std::vector<Point> thinned(const std::vector<Point>& line) {
  std::vector<Point> out;
  for (auto begin = line.begin(); begin != line.end();) {
    const auto end = std::find_if(
        begin, line.end(),
        [column = std::floor(begin->x)](const Point& p) { return std::floor(p.x) != column; });
    const auto [lowest, highest] =
        std::minmax_element(begin, end, [](const Point& a, const Point& b) { return a.y < b.y; });
    for (auto at = begin; at != end; ++at) {
      const bool stays =
          end - begin <= 4 || at == begin || at + 1 == end || at == lowest || at == highest;
      if (stays) out.push_back(*at);
    }
    begin = end;
  }
  return out;
}

}  // namespace pareprop::draw
