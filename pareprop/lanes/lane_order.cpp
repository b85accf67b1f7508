#include "pareprop/lanes/lane_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace pareprop {
namespace {

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

LaneOrder::LaneOrder(const TaskGraph& graph)
    : graph_(graph),
      needed_elsewhere_(index(graph.size()), false),
      last_(index(graph.lanes()), -1),
      left_(index(graph.lanes()), 0),
      seen_(index(graph.lanes()), Seen(index(graph.lanes()), -1)),
      seen_by_task_(index(graph.size())) {
  for (const Task& task : graph.tasks()) {
    ++left_[index(task.lane)];
    for (const int needed : task.needs) {
      if (graph[needed].lane != task.lane) needed_elsewhere_[index(needed)] = true;
    }
  }
}

std::vector<int> LaneOrder::begin(int task) {
  const int lane = graph_[task].lane;
  now_ = last_[index(lane)] = task;
  // The latest first: of one lane it stands for those before, and often for other lanes.
  std::vector<int> needs = graph_[task].needs;
  std::sort(needs.begin(), needs.end(), std::greater<>());
  Seen& seen = seen_[index(lane)];
  std::vector<int> waits;
  for (const int needed : needs) {
    if (needed <= seen[index(graph_[needed].lane)]) continue;
    see(seen, seen_by_task_[index(needed)]);
    waits.push_back(needed);
  }
  if (!waits.empty()) free_what_is_safe();
  return waits;
}

void LaneOrder::end(int task) {
  const int lane = graph_[task].lane;
  seen_[index(lane)][index(lane)] = task;
  --left_[index(lane)];
  if (needed_elsewhere_[index(task)]) seen_by_task_[index(task)] = seen_[index(lane)];
}

void LaneOrder::hand_back(std::shared_ptr<const void> memory, int owner) {
  handed_back_.push_back({now_, graph_[now_].lane, owner, std::move(memory)});
}

std::vector<int> LaneOrder::lanes_to_join() const {
  std::vector<int> lanes(last_.size() - 1), wanted;
  std::iota(lanes.begin(), lanes.end(), 1);
  std::sort(lanes.begin(), lanes.end(),
            [&](int a, int b) { return last_[index(a)] > last_[index(b)]; });
  Seen seen = seen_.front();
  for (const int lane : lanes) {
    if (last_[index(lane)] <= seen[index(lane)]) continue;
    wanted.push_back(lane);
    see(seen, seen_[index(lane)]);
  }
  return wanted;
}

void LaneOrder::see(Seen& seen, const Seen& more) {
  for (std::size_t lane = 0; lane < seen.size(); ++lane) {
    seen[lane] = std::max(seen[lane], more[lane]);
  }
}

// A lane that has no task left allocates nothing.
void LaneOrder::free_what_is_safe() {
  std::erase_if(handed_back_, [&](const HandedBack& entry) {
    for (int lane = 0; lane < graph_.lanes(); ++lane) {
      const bool may_reuse = entry.owner == Executor::kAnyLane || entry.owner == lane;
      if (may_reuse && left_[index(lane)] > 0 &&
          seen_[index(lane)][index(entry.lane)] < entry.task) {
        return false;
      }
    }
    return true;
  });
}

}  // namespace pareprop
