#pragma once

#include <functional>
#include <string>
#include <vector>

namespace pareprop::draw {

struct Bar {
  std::string label;
  std::vector<double> parts;  // from left to right; one: a plain bar
};

struct BarPlot {
  std::string title;
  std::vector<std::string> parts = {};  // what the parts of a bar are; empty: nothing to tell
  std::vector<Bar> bars = {};
  // How the value at the end of a bar is written; null: as a short number.
  std::function<std::string(double)> value_text = nullptr;
};

// Horizontal bars from zero, each with the sum of its parts. A self-contained picture, as wide as
// its place at most, readable in light and dark. Parts that are not positive numbers have no length
// and no share in the sum.
std::string svg(const BarPlot& plot);

}  // namespace pareprop::draw
