#pragma once

#include <string>
#include <vector>

namespace pareprop::draw {

struct Point {
  double x = 0.0;
  double y = 0.0;
};

struct Series {
  std::string name;
  std::vector<Point> points = {};
  bool dashed = false;
  bool markers = false;  // a dot at every point
  bool line = true;      // from point to point; without it, dots alone
};

struct LinePlot {
  std::string title;
  std::string x_label = {};
  std::string y_label = {};
  std::vector<Series> series = {};
  bool log_x = false;
  bool log_y = false;
  bool whole_x = false;      // x counts something: no ticks between whole numbers
  bool y_from_zero = false;  // not with log_y
};

// A self-contained picture, as wide as its place at most, readable in light and dark. Series of few
// points tell their values to the pointer. Points that are not finite, or that a logarithmic axis
// cannot show, leave a gap; of thousands, those stay that the eye could see: every series keeps its
// first, last, lowest and highest point in each column of pixels.
std::string svg(const LinePlot& plot);

}  // namespace pareprop::draw
