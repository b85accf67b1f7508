#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/graph/task_graph.h"

namespace pareprop {

struct TaskBytes {
  std::int64_t most = 0;    // the most it takes while it runs, above what was there when it began
  std::int64_t change = 0;  // what is there more, or less, when it has ended
};

// The most bytes above those at the beginning that can be live in any run that the graph allows on
// its lanes, however long its tasks take: of each lane at most one task runs. One TaskBytes a task.
// Throws std::invalid_argument when there are more or fewer.
std::int64_t worst_meeting(const TaskGraph& graph, const std::vector<TaskBytes>& bytes);

}  // namespace pareprop
