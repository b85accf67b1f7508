#pragma once

#include <limits>
#include <string>
#include <vector>

namespace pareprop::draw {

// Values that an axis must show.
struct Range {
  double lowest = std::numeric_limits<double>::infinity();
  double highest = -std::numeric_limits<double>::infinity();

  bool empty() const { return lowest > highest; }
  void add(double value);
};

struct AxisOptions {
  bool log = false;
  bool from_zero = false;  // linear only
  bool whole = false;      // no ticks between whole numbers, linear only
  bool rounded = true;     // begins and ends at a tick; a logarithmic axis always does
  int ticks = 5;           // about so many steps
};

struct Tick {
  double value = 0.0;
  std::string label;
};

struct Axis {
  double low = 0.0;
  double high = 1.0;  // above low
  bool log = false;
  std::vector<Tick> ticks;

  // 0 at the low end, 1 at the high one.
  double place(double value) const;
};

// Whether an axis can show it: finite and not beyond 1e300; if logarithmic, at least 1e-300.
bool can_show(double value, bool log);

// Of an empty range, or one of equal values, a sensible piece around it. All values of the range
// are such that can_show() holds.
Axis make_axis(Range range, const AxisOptions& options);

// The distance of the ticks of an axis: 1, 2 or 5 times a power of ten, the smallest that makes at
// most `ticks` steps of `length`. `length` > 0, `ticks` >= 1.
double tick_step(double length, int ticks);
// Decimals that such a step needs.
int tick_decimals(double step);

}  // namespace pareprop::draw
