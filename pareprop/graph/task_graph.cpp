#include "pareprop/graph/task_graph.h"

#include <algorithm>
#include <stdexcept>

namespace pareprop {

TaskGraph::TaskGraph(LaneRule rule, int lanes) : rule_(rule), lanes_(lanes) {
  if (lanes < 1) {
    throw std::invalid_argument("task graph: expected at least 1 lane, got " +
                                std::to_string(lanes));
  }
}

int TaskGraph::add(Task task) {
  const int id = size();
  if (task.lane < 0 || task.branch < 0) {
    throw std::invalid_argument("task graph: '" + label(task) + "' has a negative lane or branch");
  }
  if (rule_ == LaneRule::any && task.lane != 0) {
    throw std::invalid_argument("task graph: '" + label(task) + "' is on lane " +
                                std::to_string(task.lane) +
                                ", but any lane runs the tasks of this graph: expected lane 0");
  }
  for (int needed : task.needs) {
    if (needed < 0 || needed >= id) {
      throw std::invalid_argument("task graph: task " + std::to_string(id) + " '" + label(task) +
                                  "' needs task " + std::to_string(needed) +
                                  ", which was not added before it");
    }
  }
  lanes_ = std::max(lanes_, task.lane + 1);
  tasks_.push_back(std::move(task));
  return id;
}

int TaskGraph::find(TaskKind kind, int branch, int stack) const {
  const auto found = std::find_if(tasks_.begin(), tasks_.end(), [&](const Task& task) {
    return task.kind == kind && task.branch == branch && task.stack == stack;
  });
  return found == tasks_.end() ? -1 : static_cast<int>(found - tasks_.begin());
}

TaskGraph TaskGraph::without_edge(int id, int needed) const {
  TaskGraph copy = *this;
  std::erase(copy.tasks_[static_cast<std::size_t>(id)].needs, needed);
  return copy;
}

}  // namespace pareprop
