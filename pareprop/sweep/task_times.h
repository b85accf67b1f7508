#pragma once

#include "pareprop/graph/timeline.h"

namespace pareprop {

// What lanes were busy with in a backward pass, in milliseconds summed over tasks.
struct TaskTimes {
  double recover_ms = 0.0;
  double gradient_ms = 0.0;
  double weight_gradient_ms = 0.0;
  double overlap_ms = 0.0;  // in which a recovery and a gradient ran at the same time

  // Of one stack.
  void add(const TaskGraph& graph, const Timeline& timeline);
};

}  // namespace pareprop
