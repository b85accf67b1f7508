#pragma once

#include <string>
#include <string_view>

#include "pareprop/graph/timeline.h"

namespace pareprop {

// The run as a self-contained SVG file: a row per lane, a labelled box per task with a tooltip, an
// axis in milliseconds, a legend. Colours follow the reader's light or dark setting.
std::string lane_svg(const TaskGraph& graph, const Timeline& timeline,
                     std::string_view title = "Backward pass");

}  // namespace pareprop
