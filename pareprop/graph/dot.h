#pragma once

#include <string>
#include <string_view>

#include "pareprop/graph/task_graph.h"

namespace pareprop {

// The graph for Graphviz: a cluster per lane, needs as solid edges, the order within a lane as
// dashed ones where no need says the same already.
std::string to_dot(const TaskGraph& graph, std::string_view title = "backward");

}  // namespace pareprop
