#pragma once

#include <compare>

namespace pareprop::plan {

// A number of something that is not added to something else.
template <typename Unit>
struct Amount {
  double count = 0.0;

  friend Amount operator+(Amount a, Amount b) { return {a.count + b.count}; }
  friend Amount operator-(Amount a, Amount b) { return {a.count - b.count}; }
  friend Amount operator*(double factor, Amount a) { return {factor * a.count}; }
  friend Amount operator/(Amount a, double parts) { return {a.count / parts}; }
  friend double operator/(Amount a, Amount b) { return a.count / b.count; }
  Amount& operator+=(Amount other) { return *this = *this + other; }
  auto operator<=>(const Amount&) const = default;
};

using Macs = Amount<struct MultiplyAccumulate>;
using Seconds = Amount<struct Second>;

// How many of them a machine computes in a second.
struct MacsPerSecond {
  double count = 0.0;

  friend Seconds operator/(Macs work, MacsPerSecond rate) { return {work.count / rate.count}; }
};

}  // namespace pareprop::plan
