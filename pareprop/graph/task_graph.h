#pragma once

#include <string>
#include <vector>

#include "pareprop/graph/task.h"

namespace pareprop {

// Tasks in an order in which one thread may run them: a task needs only tasks added before it.
// With first-in-first-out lanes this also rules out cycles and deadlock. A plain value.
class TaskGraph {
 public:
  // Returns the id of the task: its index. Throws std::invalid_argument when the task needs itself,
  // a later or an unknown task, or has a negative lane or branch.
  int add(Task task);

  const std::vector<Task>& tasks() const { return tasks_; }
  const Task& operator[](int id) const { return tasks_[static_cast<std::size_t>(id)]; }
  int size() const { return static_cast<int>(tasks_.size()); }
  int lanes() const { return lanes_; }

  // The id of a task, or -1 when the graph has none such.
  int find(TaskKind kind, int branch, int stack = 0) const;

  // The movable tasks, in the order in which a lane that is free looks for one: the recovery that
  // all others wait for comes first, weight gradients, for which hardly any waits, last.
  std::vector<int> movable() const;

  // What `id` must wait for, directly or not, its lane's earlier tasks included. One flag a task.
  std::vector<bool> ancestors(int id) const;

  // A copy in which `id` no longer waits for `needed`: for tests that must see a race.
  TaskGraph without_edge(int id, int needed) const;

 private:
  std::vector<Task> tasks_;
  int lanes_ = 1;
};

}  // namespace pareprop
