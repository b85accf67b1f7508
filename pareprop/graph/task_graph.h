#pragma once

#include <string>
#include <vector>

#include "pareprop/graph/task.h"

namespace pareprop {

// Which lane runs a task of a graph, and when.
enum class LaneRule {
  fixed,  // Task::lane runs it, in the order in which tasks were added: accelerator streams
  any,    // whichever lane is free takes the first task that is ready, recovery before gradients
          // before weight gradients: CPU threads
};

// Tasks in an order in which one thread may run them: a task needs only tasks added before it.
// With either rule this also rules out cycles and deadlock. A plain value.
class TaskGraph {
 public:
  // LaneRule::fixed and one lane.
  TaskGraph() = default;
  // With LaneRule::fixed a task on a higher lane adds lanes. Throws std::invalid_argument when
  // `lanes` is less than 1.
  TaskGraph(LaneRule rule, int lanes);

  // Returns the id of the task: its index. Throws std::invalid_argument when the task needs itself,
  // a later or an unknown task, or has a negative branch, a negative lane or, with LaneRule::any,
  // a lane other than 0.
  int add(Task task);

  LaneRule rule() const { return rule_; }
  const std::vector<Task>& tasks() const { return tasks_; }
  const Task& operator[](int id) const { return tasks_[static_cast<std::size_t>(id)]; }
  int size() const { return static_cast<int>(tasks_.size()); }
  int lanes() const { return lanes_; }

  // The id of a task, or -1 when the graph has none such.
  int find(TaskKind kind, int branch, int stack = 0) const;

  // A copy in which `id` no longer waits for `needed`: for tests that must see a race.
  TaskGraph without_edge(int id, int needed) const;

 private:
  LaneRule rule_ = LaneRule::fixed;
  int lanes_ = 1;
  std::vector<Task> tasks_;
};

}  // namespace pareprop
