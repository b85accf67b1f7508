#include "pareprop/graph/timeline.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

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

Timeline simulate(const TaskGraph& graph, const TaskCosts& costs) {
  Timeline timeline;
  timeline.spans.reserve(static_cast<std::size_t>(graph.size()));
  std::vector<double> lane_free(static_cast<std::size_t>(graph.lanes()), 0.0);
  for (int id = 0; id < graph.size(); ++id) {
    const Task& task = graph[id];
    const double cost = costs(task);
    if (!std::isfinite(cost) || cost < 0.0) {
      throw std::invalid_argument("simulate: the cost of '" + label(task) + "' is " +
                                  std::to_string(cost) +
                                  "; expected a finite number of seconds, not negative");
    }
    double& lane = lane_free[static_cast<std::size_t>(task.lane)];
    double begin = lane;
    for (int needed : task.needs) {
      begin = std::max(begin, timeline.spans[static_cast<std::size_t>(needed)].end);
    }
    lane = begin + cost;
    timeline.spans.push_back({.task = id, .lane = task.lane, .begin = begin, .end = lane});
  }
  return timeline;
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
      throw std::invalid_argument("timeline: a span is of task " + std::to_string(span.task) +
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
