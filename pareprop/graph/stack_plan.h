#pragma once

#include <optional>
#include <vector>

#include "pareprop/graph/policy.h"

namespace pareprop {

// How one stack is trained: what its forward pass keeps, and how its backward pass is scheduled. A
// plain value; results do not depend on it but for rounding, and in exact arithmetic not at all.
struct StackPlan {
  // One a block.
  std::vector<Policy> policies = {};
  // Recovery runs beside the gradients, on lanes; what follows up to `lanes` counts only then.
  bool overlap = false;
  // Branches that recovery may be ahead of the gradient; 2 is one block.
  int lookahead = 2;
  // Branches whose weight gradients may be outstanding; 0: never deferred.
  int deferred = 2;
  // CPU lanes: 2 or 3.
  int lanes = 2;
  // Topmost branches that keep their tapes whatever their policy. None: as many as the backward
  // pass has alive at a time anyway. 0 for stacks that are not the last before the loss.
  std::optional<int> tail = std::nullopt;

  int kept_tail() const { return tail.value_or(overlap ? lookahead + 1 : 1); }
  bool operator==(const StackPlan&) const = default;
};

// How a training step of a network is run.
struct StepPlan {
  std::vector<StackPlan> stacks = {};  // one a stack, from the input of the network on
  bool recompute_between = false;      // what lies between stacks is recomputed instead of stored

  bool overlaps() const;
  bool stores_all() const;  // nothing is recomputed
  bool operator==(const StepPlan&) const = default;
};

// What a mode means: the only place that knows. Throws std::invalid_argument for `auto`, which is
// not one plan: plan::Planner finds it.
StackPlan plan_of(Mode mode, int depth);
// Of a network whose stacks have so many blocks. Only the last one keeps a tail.
StepPlan plan_of(Mode mode, const std::vector<int>& depths);

// One policy for every block, with or without overlap; as plan_of() otherwise.
StepPlan uniform_plan(Policy policy, bool overlap, const std::vector<int>& depths);

// The preset that a plan is, or is nearest to: `stored` where nothing is recomputed, `checkpoint`
// where every block is one, `pareprop` where recovery overlaps, else `reprop`.
Mode nearest_mode(const StepPlan& plan);

// Throws std::invalid_argument when the plan is not one of a stack of `depth` blocks.
void check_plan(const StackPlan& plan, int depth);

}  // namespace pareprop
