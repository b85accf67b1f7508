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
  // 2 or 3, of which the graph has as many as its tasks can fill.
  int lanes = 2;
  // Each block ends with a task that gives its gradients away (TaskKind::update).
  bool updates = false;
  // Of the overlapped graph. With LaneRule::fixed recovery and gradient of a branch are on its
  // fixed_lane(), deferred weight gradients on lane 2, or where there are two on that of their
  // branch. Updates are where weight gradients are.
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
// With updates, update(i) of block i needs all gradients of its two branches and update(i + 1), so
// that a sum over several blocks is whole; and the first gradient of block i needs update(i + 2),
// which bounds the gradients that are alive to those of two blocks.
// With LaneRule::fixed weight_gradient(s) also needs weight_gradient(s - 1). Lanes are streams
// then, where no lock orders what two of them add to a shared parameter or hand to whoever watches.
// One stream (KeepPlan::coupling) is recovered block by block, F before G, so gradient(0) needs two
// recoveries, and a lookahead of at least 1: a smaller one counts as 1.
// Without overlap everything is on lane 0, LaneRule::fixed, as recover(0) gradient(0) recover(1)
// gradient(1) ...: one branch's tape at a time, or in one stream those of one block.
// Branches below KeepPlan::first have no tasks.

// The backward pass of one stack. `ready` topmost branches were recovered in advance. When `below`
// is given, the graph ends with the recovery of its topmost branches (Task::stack 1) as far as it
// can run beside the last gradients of this stack: min(lookahead, its branches) of them, which is
// the `ready` of its own schedule. None without overlap or when this stack is empty.
TaskGraph backward_schedule(const KeepPlan& plan, const ScheduleOptions& options, int ready = 0,
                            const KeepPlan* below = nullptr);

// The lane, 0 or 1, that recovers branch `k` and computes its gradient with LaneRule::fixed:
// autograd runs a gradient on the stream that recorded its tape. The recovery that runs beside a
// gradient must be on the other lane. With a look-ahead of 1 that is the next branch, so branches
// alternate, and each lane has the tapes of either F or G. With more, blocks alternate.
int fixed_lane(int k, int lookahead);

// A forward pass on streams, LaneRule::fixed: one task a branch, one after another, on the lane
// that has the branch's gradient. The kinds of the tasks mean nothing.
TaskGraph forward_schedule(int branches, int lanes, int lookahead);

}  // namespace pareprop
