#include "pareprop/plan/lane_time.h"

#include "pareprop/graph/schedule.h"
#include "pareprop/graph/stack_plan.h"
#include "pareprop/graph/timeline.h"

namespace pareprop::plan {

Seconds seconds_in_lanes(const StackProfile& stack, const std::vector<Policy>& policies) {
  const Seconds none = cost_of(stack.serial, Policy::store).cost;
  const Seconds all = stack.recomputation();
  const auto costs = [&](const Task& task) {
    const Policy policy = policies.at(static_cast<std::size_t>(task.block()));
    const double share = all > Seconds{} ? (cost_of(stack.serial, policy).cost - none) / all : 0.0;
    const double again = share * stack.in_lanes.recover;
    // A block has two branches.
    switch (task.kind) {
      case TaskKind::recover:
        return again / 2;
      case TaskKind::gradient:
        return (stack.in_lanes.gradient + (policy == Policy::products ? again : 0.0)) / 2;
      case TaskKind::weight_gradient:
        return stack.in_lanes.weight_gradient / 2;
      case TaskKind::update:  // not in this graph: the optimizer is not timed
        break;
    }
    return 0.0;
  };
  const StackPlan usual;
  const TaskGraph graph = backward_schedule(
      keep_plan(policies, {.coupling = stack.coupling, .first_block = stack.first}),
      {.overlap = true, .lookahead = usual.ahead(), .deferred = usual.deferred});
  return {simulate(graph, costs).makespan()};
}

}  // namespace pareprop::plan
