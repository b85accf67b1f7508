#include "pareprop/graph/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/graph/waiting_tasks.h"

namespace pareprop {

double Timeline::begin() const {
  if (spans.empty()) return 0.0;
  return std::min_element(spans.begin(), spans.end(),
                          [](const Span& a, const Span& b) { return a.begin < b.begin; })
      ->begin;
}

double Timeline::end() const {
  if (spans.empty()) return 0.0;
  return std::max_element(spans.begin(), spans.end(),
                          [](const Span& a, const Span& b) { return a.end < b.end; })
      ->end;
}

double Timeline::busy(int lane) const {
  double seconds = 0.0;
  for (const Span& span : spans) {
    if (span.lane == lane) seconds += span.length();
  }
  return seconds;
}

int Timeline::lanes() const {
  int count = 0;
  for (const Span& span : spans) count = std::max(count, span.lane + 1);
  return count;
}

namespace {

std::vector<double> checked_costs(const TaskGraph& graph, const TaskCosts& costs) {
  std::vector<double> seconds;
  for (const Task& task : graph.tasks()) {
    const double cost = costs(task);
    if (!std::isfinite(cost) || cost < 0.0) {
      throw std::invalid_argument("simulate: the cost of '" + label(task) + "' is " +
                                  std::to_string(cost) +
                                  "; expected a finite number of seconds, not negative");
    }
    seconds.push_back(cost);
  }
  return seconds;
}

// What CpuLanes does, with a clock instead of threads.
class Simulation {
 public:
  Simulation(const TaskGraph& graph, std::vector<double> seconds)
      : graph_(graph),
        seconds_(std::move(seconds)),
        waiting_(graph),
        free_from_(static_cast<std::size_t>(graph.lanes()), 0.0) {
    timeline_.spans.resize(seconds_.size(), {.task = kNotBegun});
  }

  Timeline run() {
    for (std::size_t left = seconds_.size(); left > 0;) {
      const std::size_t begun = begin_tasks();
      left -= begun;
      if (begun == 0) advance();
    }
    return std::move(timeline_);
  }

 private:
  static constexpr int kNotBegun = -1;

  bool ready(int id) const {
    const auto& needs = graph_[id].needs;
    return std::all_of(needs.begin(), needs.end(), [&](int needed) {
      const Span& span = timeline_.spans[static_cast<std::size_t>(needed)];
      return span.task != kNotBegun && span.end <= now_;
    });
  }

  std::size_t begin_tasks() {
    std::size_t begun = 0;
    for (int lane = 0; lane < graph_.lanes(); ++lane) {
      double& free_from = free_from_[static_cast<std::size_t>(lane)];
      if (free_from > now_) continue;
      const int id = waiting_.take(lane, [this](int task) { return ready(task); });
      if (id == WaitingTasks::kNone) continue;
      free_from = now_ + seconds_[static_cast<std::size_t>(id)];
      timeline_.spans[static_cast<std::size_t>(id)] = {
          .task = id, .lane = lane, .begin = now_, .end = free_from};
      ++begun;
    }
    return begun;
  }

  // Needs point backwards, so as long as a task is left one is running.
  void advance() {
    double soonest = std::numeric_limits<double>::infinity();
    for (const double free_from : free_from_) {
      if (free_from > now_) soonest = std::min(soonest, free_from);
    }
    now_ = soonest;
  }

  const TaskGraph& graph_;
  const std::vector<double> seconds_;
  WaitingTasks waiting_;
  std::vector<double> free_from_;  // by lane: when its last task ends
  double now_ = 0.0;
  Timeline timeline_;
};

}  // namespace

Timeline simulate(const TaskGraph& graph, const TaskCosts& costs) {
  return Simulation(graph, checked_costs(graph, costs)).run();
}

double overlapped(const TaskGraph& graph, const Timeline& timeline) {
  check_timeline(graph, timeline);
  struct Change {
    double time;
    int recovers;
    int gradients;
  };
  std::vector<Change> changes;
  changes.reserve(2 * timeline.spans.size());
  for (const Span& span : timeline.spans) {
    const int is_recover = graph[span.task].kind == TaskKind::recover ? 1 : 0;
    changes.push_back({span.begin, is_recover, 1 - is_recover});
    changes.push_back({span.end, -is_recover, is_recover - 1});
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.time < b.time; });

  double seconds = 0.0;
  double since = 0.0;
  int recovers = 0, gradients = 0;
  for (const Change& change : changes) {
    if (recovers > 0 && gradients > 0) seconds += change.time - since;
    since = change.time;
    recovers += change.recovers;
    gradients += change.gradients;
  }
  return seconds;
}

void check_timeline(const TaskGraph& graph, const Timeline& timeline) {
  std::vector<bool> seen(static_cast<std::size_t>(graph.size()), false);
  for (const Span& span : timeline.spans) {
    if (span.task < 0 || span.task >= graph.size()) {
      throw std::invalid_argument("timeline: a span belongs to task " + std::to_string(span.task) +
                                  ", but the graph has " + std::to_string(graph.size()) +
                                  " tasks: expected the timeline of this graph");
    }
    const std::string what =
        "timeline: task " + std::to_string(span.task) + " '" + label(graph[span.task]) + "' ";
    if (seen[static_cast<std::size_t>(span.task)]) {
      throw std::invalid_argument(what + "has two spans: expected one run of this graph");
    }
    seen[static_cast<std::size_t>(span.task)] = true;
    if (!std::isfinite(span.begin) || !std::isfinite(span.end) || span.end < span.begin ||
        span.lane < 0) {
      throw std::invalid_argument(what + "runs from " + std::to_string(span.begin) + " s to " +
                                  std::to_string(span.end) + " s on lane " +
                                  std::to_string(span.lane) +
                                  ": expected finite times, in order, on a lane of 0 or more");
    }
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end()) {
    const auto id = static_cast<int>(missing - seen.begin());
    throw std::invalid_argument("timeline: task " + std::to_string(id) + " '" + label(graph[id]) +
                                "' has no span: expected one for every task of the graph");
  }
}

}  // namespace pareprop
