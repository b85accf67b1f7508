#pragma once

#include <optional>
#include <vector>

#include "pareprop/graph/coupling.h"

namespace pareprop {

// How one stack is trained: what its forward pass keeps, and how its backward pass is scheduled.
// Plans change results only by rounding, and in exact arithmetic not at all.
struct StackPlan {
  // One for each block.
  std::vector<Policy> policies = {};
  // Recovery runs at the same time as the gradients, on lanes. Only then `lookahead`, `deferred`
  // and `lanes` have an effect.
  bool overlap = false;
  // How many branches recovery may be ahead of the gradients; 2 is one block. None: 2, or on an
  // accelerator 1, which is enough for two streams, each of which has memory of its own. Ordinary
  // blocks, whose F and G are run again together, need 1 at least, on an accelerator 2.
  std::optional<int> lookahead = std::nullopt;
  // How many branches may wait for their weight gradients; 0: none is deferred.
  int deferred = 2;
  // Number of CPU lanes: 2 or 3.
  int lanes = 2;
  // How many of the topmost branches keep their tapes under any policy. None: as many as the
  // backward pass has alive at the same time anyway. Use 0 for a stack that is not the last one
  // before the loss.
  std::optional<int> tail = std::nullopt;

  // In a stack whose branches are coupled like this. One stream is recovered block by block.
  int ahead(bool streams = false, Coupling coupling = Coupling::reversible) const;
  int kept_tail(bool streams = false, Coupling coupling = Coupling::reversible) const;
  bool operator==(const StackPlan&) const = default;
};

// How a training step of a network is run.
struct StepPlan {
  std::vector<StackPlan> stacks = {};  // one for each stack, from input to output
  bool recompute_between = false;      // layers between stacks are recomputed, not stored

  bool overlaps() const;
  bool stores_all() const;  // nothing is recomputed
  bool operator==(const StepPlan&) const = default;
};

// The plan that a mode stands for. Throws std::invalid_argument for `auto`, which has no fixed
// plan: plan::Planner finds one.
StackPlan plan_of(Mode mode, int depth);
// The same for a network whose stacks have so many blocks. Only the last stack has a tail.
StepPlan plan_of(Mode mode, const std::vector<int>& depths);

// The plan of mode pareprop, or of reprop, in which blocks that cannot be reversed are
// checkpointed: nothing is stored but what the branches are run again from.
StepPlan recomputing_plan(bool overlap, const std::vector<int>& depths, Coupling coupling);

// One policy for all blocks, with or without overlap; the rest is as in plan_of().
StepPlan uniform_plan(Policy policy, bool overlap, const std::vector<int>& depths);

// The mode that is most like the plan: `stored` if nothing is recomputed, `checkpoint` if all
// blocks have that policy, `pareprop` if recovery overlaps, else `reprop`.
Mode nearest_mode(const StepPlan& plan);

// Throws std::invalid_argument if the plan does not fit a stack of `depth` blocks, or has a policy
// that blocks that are coupled like this cannot have.
void check_plan(const StackPlan& plan, int depth, Coupling coupling = Coupling::reversible);

}  // namespace pareprop
