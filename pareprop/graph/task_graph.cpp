#include "pareprop/graph/task_graph.h"

#include <algorithm>
#include <stdexcept>

namespace pareprop {

int TaskGraph::add(Task task) {
  const int id = size();
  if (task.lane < 0 || task.branch < 0) {
    throw std::invalid_argument("task graph: '" + label(task) + "' has a negative lane or branch");
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

std::vector<int> TaskGraph::movable() const {
  std::vector<int> ids;
  for (int id = 0; id < size(); ++id) {
    if (tasks_[static_cast<std::size_t>(id)].movable) ids.push_back(id);
  }
  std::stable_sort(ids.begin(), ids.end(), [this](int a, int b) {
    return tasks_[static_cast<std::size_t>(a)].kind < tasks_[static_cast<std::size_t>(b)].kind;
  });
  return ids;
}

std::vector<bool> TaskGraph::ancestors(int id) const {
  std::vector<bool> before(tasks_.size(), false);
  std::vector<bool> reached(tasks_.size(), false);
  reached[static_cast<std::size_t>(id)] = true;
  std::vector<bool> lane_reached(static_cast<std::size_t>(lanes_), false);
  // Needs point backwards, so one pass from `id` down sees every task after all that wait for it.
  for (int i = id; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const Task& task = tasks_[at];
    auto lane = lane_reached[static_cast<std::size_t>(task.lane)];
    if (!reached[at] && (!lane || task.movable)) continue;
    if (i != id) before[at] = true;
    if (!task.movable) lane = true;
    for (int needed : task.needs) reached[static_cast<std::size_t>(needed)] = true;
  }
  return before;
}

TaskGraph TaskGraph::without_edge(int id, int needed) const {
  TaskGraph copy = *this;
  std::erase(copy.tasks_[static_cast<std::size_t>(id)].needs, needed);
  return copy;
}

}  // namespace pareprop
