#pragma once

#include "pareprop/graph/keep_plan.h"
#include "pareprop/graph/task_graph.h"

namespace pareprop {

struct ScheduleOptions {
  // Recovery runs beside the gradient chain, and ahead of it.
  bool overlap = false;
  // How many branches recovery may be ahead of the gradient; 2 is one block. At most
  // lookahead + 1 recovered tapes are alive, those that wait for their weight gradients included.
  int lookahead = 2;
  // Weight gradients become tasks of their own, off the critical path; while a gradient runs, at
  // most this many branches above it may be without theirs. 0: computed with the gradient. Used
  // with overlap only.
  int deferred = 0;
  // 2 or 3, of which the graph has as many as its tasks can fill. LaneRule::fixed uses 2.
  int lanes = 2;
  // Of the overlapped graph. With LaneRule::fixed blocks alternate between lanes 0 and 1, recovery
  // and gradient together: autograd runs a gradient on the stream that recorded its tape.
  LaneRule rule = LaneRule::any;
};

// Note [The backward schedule]
// Branches are walked from the top, s = 0, 1, 2, ... The recover chain is recover(s) ->
// recover(s+1), the gradient chain is gradient(s) -> gradient(s+1), and gradient(s) needs
// recover(s): a recover never needs a gradient, which is what lets the chains overlap. Three edges
// only bound memory, to lookahead + 1 recovered tapes:
//     recover(s)  needs gradient(s - 1 - lookahead)
//     recover(s)  needs weight_gradient(s - 1 - lookahead)
//     gradient(s) needs weight_gradient(s - 1 - deferred)
// Without overlap everything is on lane 0, LaneRule::fixed, as recover(0) gradient(0) recover(1)
// gradient(1) ...: one branch's tape at a time.

// The backward pass of one stack. `ready` topmost branches were recovered in advance. When `below`
// is given, the graph ends with the recovery of its topmost branches (Task::stack 1) as far as it
// can run beside the last gradients of this stack: min(lookahead, its branches) of them, which is
// the `ready` of its own schedule. None without overlap or when this stack is empty.
TaskGraph backward_schedule(const KeepPlan& plan, const ScheduleOptions& options, int ready = 0,
                            const KeepPlan* below = nullptr);

}  // namespace pareprop
