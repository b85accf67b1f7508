#pragma once

#include <vector>

#include "pareprop/draw/line_plot.h"

namespace pareprop::draw {

// Of a line in pixels, what the eye can see: where more than four points in a row are in the same
// column of pixels, the first, the lowest, the highest and the last stay, in their order.
std::vector<Point> thinned(const std::vector<Point>& line);

}  // namespace pareprop::draw
