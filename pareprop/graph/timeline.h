#pragma once

#include <functional>
#include <vector>

#include "pareprop/graph/task_graph.h"

namespace pareprop {

// When a task ran, in seconds.
struct Span {
  int task = 0;
  int lane = 0;
  double begin = 0.0;
  double end = 0.0;

  double length() const { return end - begin; }
};

// When every task of a graph ran: simulated from second 0 on, or measured, in seconds of
// std::chrono::steady_clock, so that timelines of one process can be put together. In any order.
struct Timeline {
  std::vector<Span> spans;

  double begin() const;  // of the first span; 0 without spans, as the others
  double end() const;
  double makespan() const { return end() - begin(); }
  double busy(int lane) const;  // seconds in which the lane ran a task
  int lanes() const;            // one more than the highest lane
};

// Seconds that a task takes.
using TaskCosts = std::function<double(const Task&)>;

// Every task begins as soon as the tasks it needs have ended and a lane is free to take it by the
// graph's LaneRule. Spans are in the order of the graph. Throws std::invalid_argument when a cost
// is negative or not finite.
Timeline simulate(const TaskGraph& graph, const TaskCosts& costs);

// Seconds in which a recover and a gradient (of either kind) ran at the same time.
double overlapped(const TaskGraph& graph, const Timeline& timeline);

// Throws std::invalid_argument unless every task of the graph has exactly one span, whose times are
// finite and which does not end before it begins.
void check_timeline(const TaskGraph& graph, const Timeline& timeline);

}  // namespace pareprop
