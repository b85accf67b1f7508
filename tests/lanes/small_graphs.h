#pragma once

#include <utility>

#include "pareprop/graph/task_graph.h"

namespace pareprop::testing {

// A body is given the task of the graph itself, not a copy.
inline int id_of(const TaskGraph& graph, const Task& task) {
  return static_cast<int>(&task - graph.tasks().data());
}

// Tasks on two lanes in turn, each of which needs the one before.
inline TaskGraph ping_pong(int length) {
  TaskGraph graph;
  for (int i = 0; i < length; ++i) {
    Task task{.branch = i, .lane = i % 2, .needs = {}};
    if (i > 0) task.needs.push_back(i - 1);
    graph.add(std::move(task));
  }
  return graph;
}

// Two lanes, no edges.
inline TaskGraph side_by_side() {
  TaskGraph graph;
  graph.add({.branch = 0, .lane = 0, .needs = {}});
  graph.add({.branch = 1, .lane = 1, .needs = {}});
  return graph;
}

}  // namespace pareprop::testing
