#pragma once

#include <vector>

#include "pareprop/graph/task_graph.h"

namespace pareprop::testing {

// What task `id` must wait for, directly or not, with LaneRule::fixed its lane's earlier tasks
// included. One flag a task.
inline std::vector<bool> ancestors(const TaskGraph& graph, int id) {
  const auto tasks = static_cast<std::size_t>(graph.size());
  std::vector<bool> before(tasks, false), reached(tasks, false);
  reached[static_cast<std::size_t>(id)] = true;
  std::vector<bool> lane_reached(static_cast<std::size_t>(graph.lanes()), false);
  // Needs point backwards, so one pass from `id` down sees every task after all that wait for it.
  for (int i = id; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    auto lane = lane_reached[static_cast<std::size_t>(graph[i].lane)];
    if (!reached[at] && !lane) continue;
    if (i != id) before[at] = true;
    if (graph.rule() == LaneRule::fixed) lane = true;
    for (int needed : graph[i].needs) reached[static_cast<std::size_t>(needed)] = true;
  }
  return before;
}

}  // namespace pareprop::testing
