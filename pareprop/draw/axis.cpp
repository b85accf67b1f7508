#include "pareprop/draw/axis.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "pareprop/text/fixed.h"

namespace pareprop::draw {

double tick_step(double length, int ticks) {
  const double least = length / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1.0 - 1e-9)) return factor * power;
  }
  return 10.0 * power;
}

int tick_decimals(double step) {
  constexpr int kMost = 9;
  const auto digits = static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return digits < 0 ? 0 : digits > kMost ? kMost : digits;
}

namespace {

constexpr double kLargest = 1e300, kSmallest = 1e-300;
constexpr double kRounding = 1e-9;  // relative; closer values are the same to an axis

// 1, 2 or 5 times a power of ten, not above (or not below) `value`, which is positive.
double round_down(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (double factor : {5.0, 2.0}) {
    if (factor * power <= value * (1.0 + kRounding)) return factor * power;
  }
  return power;
}
double round_up(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1.0 - kRounding)) return factor * power;
  }
  return 10.0 * power;
}

// All labels of an axis have one unit and as many decimals as their distance needs.
std::string label_of(double value, double step, double largest) {
  if (std::abs(value) < step * 1e-6) return "0";
  struct Unit {
    double size;
    const char* name;
  };
  static constexpr std::array kUnits = {Unit{1e9, "G"}, Unit{1e6, "M"}, Unit{1e3, "k"}};
  if (largest >= 1e-3 && largest < 1e4) return text::fixed(value, tick_decimals(step));
  if (largest >= 1e4 && largest < 1e13) {
    for (const Unit& unit : kUnits) {
      if (largest < unit.size) continue;
      return text::fixed(value / unit.size, tick_decimals(step / unit.size)) + unit.name;
    }
  }
  const double exponent = std::floor(std::log10(largest) + kRounding);
  const double power = std::pow(10.0, exponent);
  return text::fixed(value / power, tick_decimals(step / power)) + "e" + text::fixed(exponent, 0);
}

Axis linear_axis(Range range, const AxisOptions& options) {
  double low = range.empty() ? 0.0 : range.lowest, high = range.empty() ? 1.0 : range.highest;
  if (options.from_zero) {
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  const double largest = std::max(std::abs(low), std::abs(high));
  if (largest < kSmallest) {
    low = 0.0;
    high = 1.0;
  } else if (high - low <= kRounding * largest) {
    low -= 0.1 * largest;
    high += 0.1 * largest;
  }
  double step = tick_step(high - low, options.ticks);
  if (options.whole) step = std::max(step, 1.0);
  if (options.rounded) {
    low = std::floor(low / step + kRounding) * step;
    high = std::ceil(high / step - kRounding) * step;
  }
  Axis axis{.low = low, .high = high, .log = false, .ticks = {}};
  const double most = std::max(std::abs(low), std::abs(high));
  for (double k = std::ceil(low / step - kRounding); k <= high / step + kRounding; ++k) {
    axis.ticks.push_back({k * step, label_of(k * step, step, most)});
  }
  return axis;
}

Axis log_axis(Range range, const AxisOptions& options) {
  constexpr double kFewDecades = 2.0;
  double low = range.empty() ? 1.0 : range.lowest, high = range.empty() ? 10.0 : range.highest;
  if (high <= low * (1.0 + kRounding)) {
    low /= 2.0;
    high *= 2.0;
  }
  Axis axis{.low = round_down(low), .high = round_up(high), .log = true, .ticks = {}};
  if (std::log10(axis.high) - std::log10(axis.low) <= kFewDecades + kRounding) {
    for (double value = axis.low; value <= axis.high * (1.0 + kRounding);
         value = round_up(value * 1.5)) {
      axis.ticks.push_back({value, text::short_number(value, 3)});
    }
    return axis;
  }
  double first = std::floor(std::log10(low) + kRounding);
  const double last = std::ceil(std::log10(high) - kRounding);
  axis.low = std::pow(10.0, first);
  axis.high = std::pow(10.0, last);
  const double stride = std::ceil((last - first) / options.ticks);
  for (; first <= last; first += stride) {
    const double value = std::pow(10.0, first);
    axis.ticks.push_back({value, text::short_number(value, 3)});
  }
  return axis;
}

}  // namespace

void Range::add(double value) {
  lowest = std::min(lowest, value);
  highest = std::max(highest, value);
}

double Axis::place(double value) const {
  if (!log) return (value - low) / (high - low);
  return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
}

bool can_show(double value, bool log) {
  return std::isfinite(value) && std::abs(value) <= kLargest && (!log || value >= kSmallest);
}

Axis make_axis(Range range, const AxisOptions& options) {
  return options.log ? log_axis(range, options) : linear_axis(range, options);
}

}  // namespace pareprop::draw
