#pragma once

#include <vector>

#include "pareprop/plan/profile.h"

namespace pareprop::plan {

// Seconds of the backward pass of a stack in two lanes: its schedule, run through with the times
// that tasks were seen to take beside each other. Sums over blocks do not know that a lane waits
// where there is nothing to recover, and at both ends of a stack. Of lanes and look-ahead as
// StackPlan has them by default; without a tail, and without what the stack above recovers in
// advance.
// REQUIRES: stack.in_lanes is known.
Seconds seconds_in_lanes(const StackProfile& stack, const std::vector<Policy>& policies);

}  // namespace pareprop::plan
