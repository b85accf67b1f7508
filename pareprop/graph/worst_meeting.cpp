#include "pareprop/graph/worst_meeting.h"

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace pareprop {
namespace {

// Tasks that have ended: all before `first`, which has not, and those of the later ones in `after`.
struct Ended {
  int first = 0;
  std::vector<bool> after;  // [i]: first + i; empty or true at its end

  bool has(int task) const {
    const auto i = static_cast<std::size_t>(task - first);
    return task < first || (i < after.size() && after[i]);
  }

  Ended with(int task) const {
    Ended more = *this;
    const auto i = static_cast<std::size_t>(task - first);
    if (more.after.size() <= i) more.after.resize(i + 1);
    more.after[i] = true;
    const auto gap = std::find(more.after.begin(), more.after.end(), false);
    more.first += static_cast<int>(gap - more.after.begin());
    more.after.erase(more.after.begin(), gap);
    return more;
  }

  auto operator<=>(const Ended&) const = default;
};

class Meetings {
 public:
  Meetings(const TaskGraph& graph, const std::vector<TaskBytes>& bytes)
      : graph_(graph), bytes_(bytes), waits_for_(bytes.size()) {
    std::vector<int> last(static_cast<std::size_t>(graph.lanes()), -1);
    for (int id = 0; id < graph.size(); ++id) {
      auto& waits = waits_for_[static_cast<std::size_t>(id)];
      waits = graph[id].needs;
      if (graph.rule() == LaneRule::any) continue;
      int& before = last[static_cast<std::size_t>(graph[id].lane)];
      if (before >= 0) waits.push_back(before);
      before = id;
    }
  }

  std::int64_t worst() {
    std::set<Ended> now{Ended{}};
    while (!now.empty()) {
      std::set<Ended> next;  // one task more has ended
      for (const Ended& ended : now) {
        const std::vector<int> ready = ready_after(ended);
        meet(ended, ready);
        for (const int task : ready) next.insert(ended.with(task));
      }
      now = std::move(next);
    }
    return worst_;
  }

 private:
  std::vector<int> ready_after(const Ended& ended) const {
    std::vector<int> ready;
    for (int task = ended.first; task < graph_.size(); ++task) {
      const auto& waits = waits_for_[static_cast<std::size_t>(task)];
      if (!ended.has(task) &&
          std::all_of(waits.begin(), waits.end(), [&](int id) { return ended.has(id); })) {
        ready.push_back(task);
      }
    }
    return ready;
  }

  void meet(const Ended& ended, const std::vector<int>& ready) {
    std::int64_t live = 0;
    for (int task = 0; task < ended.first + static_cast<int>(ended.after.size()); ++task) {
      if (ended.has(task)) live += bytes_[static_cast<std::size_t>(task)].change;
    }
    std::vector<std::int64_t> most;
    for (const int task : ready) most.push_back(bytes_[static_cast<std::size_t>(task)].most);
    std::sort(most.begin(), most.end(), std::greater<>());
    most.resize(std::min(most.size(), static_cast<std::size_t>(graph_.lanes())));
    for (const std::int64_t one : most) live += one;
    worst_ = std::max(worst_, live);
  }

  const TaskGraph& graph_;
  const std::vector<TaskBytes>& bytes_;
  std::vector<std::vector<int>> waits_for_;
  std::int64_t worst_ = 0;
};

}  // namespace

std::int64_t worst_meeting(const TaskGraph& graph, const std::vector<TaskBytes>& bytes) {
  if (bytes.size() != static_cast<std::size_t>(graph.size())) {
    throw std::invalid_argument("worst meeting: bytes of " + std::to_string(bytes.size()) +
                                " tasks were given, but the graph has " +
                                std::to_string(graph.size()));
  }
  return Meetings(graph, bytes).worst();
}

}  // namespace pareprop
