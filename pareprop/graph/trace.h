#pragma once

#include <string>
#include <string_view>

#include "pareprop/graph/timeline.h"

namespace pareprop {

// The run as JSON for Perfetto or chrome://tracing, times in microseconds from the first task.
// Every lane has a row for each kind of task it ran, as Perfetto has no overlapping slices in a row
// and measured ones may overlap a little.
std::string chrome_trace(const TaskGraph& graph, const Timeline& timeline,
                         std::string_view process = "backward");

}  // namespace pareprop
