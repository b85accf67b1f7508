#pragma once

#include <vector>

#include "pareprop/draw/line_plot.h"

namespace pareprop::draw {

// Points that no other beats by having no more of x and no less of y, such as bytes and speed; in
// the order of x, each once. Points that are not finite are left out.
std::vector<Point> frontier(std::vector<Point> points);

}  // namespace pareprop::draw
