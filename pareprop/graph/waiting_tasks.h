#pragma once

#include <functional>
#include <vector>

#include "pareprop/graph/task_graph.h"

namespace pareprop {

// The tasks of a graph that no lane has begun, and which of them a lane that is free takes next by
// the graph's LaneRule. Not thread-safe.
class WaitingTasks {
 public:
  static constexpr int kNone = -1;

  explicit WaitingTasks(const TaskGraph& graph);

  // No task is left that this lane could take, now or later.
  bool empty(int lane) const { return tasks_[list(lane)].empty(); }

  // The task that the lane begins now, or kNone. `ready` says whether all that a task needs has
  // ended.
  int take(int lane, const std::function<bool(int id)>& ready);

 private:
  std::size_t list(int lane) const {
    return rule_ == LaneRule::any ? 0 : static_cast<std::size_t>(lane);
  }

  LaneRule rule_;
  std::vector<std::vector<int>> tasks_;  // by lane, or one list for all, in the order of preference
};

}  // namespace pareprop
