#include "pareprop/graph/waiting_tasks.h"

#include <algorithm>

namespace pareprop {

WaitingTasks::WaitingTasks(const TaskGraph& graph)
    : rule_(graph.rule()),
      tasks_(rule_ == LaneRule::any ? 1 : static_cast<std::size_t>(graph.lanes())) {
  for (int id = 0; id < graph.size(); ++id) tasks_[list(graph[id].lane)].push_back(id);
  if (rule_ == LaneRule::fixed) return;
  // All other tasks wait for recovery, and hardly any for weight gradients.
  std::stable_sort(tasks_[0].begin(), tasks_[0].end(),
                   [&](int a, int b) { return graph[a].kind < graph[b].kind; });
}

int WaitingTasks::take(int lane, const std::function<bool(int)>& ready) {
  std::vector<int>& tasks = tasks_[list(lane)];
  const bool only_first = rule_ == LaneRule::fixed && !tasks.empty();
  const auto end = only_first ? tasks.begin() + 1 : tasks.end();
  const auto taken = std::find_if(tasks.begin(), end, [&](int id) { return ready(id); });
  if (taken == end) return kNone;
  const int id = *taken;
  tasks.erase(taken);
  return id;
}

}  // namespace pareprop
