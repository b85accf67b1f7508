#pragma once

#include <vector>

namespace pareprop {

// The value below which a share (0 to 1) of the values is, between two of them in proportion; 0 of
// none. The median is that of 0.5.
double quantile(std::vector<double> values, double share);

}  // namespace pareprop
