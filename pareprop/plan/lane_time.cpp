#include "pareprop/plan/lane_time.h"

#include "pareprop/graph/schedule.h"
#include "pareprop/graph/timeline.h"
#include "pareprop/reversible/stack_options.h"

namespace pareprop::plan {

double seconds_in_lanes(const StackProfile& stack, const std::vector<Policy>& policies) {
  const double none = cost_of(stack.serial, Policy::store).seconds;
  const double all = cost_of(stack.serial, Policy::reverse).seconds - none;
  const auto costs = [&](const Task& task) {
    const Policy policy = policies.at(static_cast<std::size_t>(task.block()));
    const double share = all > 0.0 ? (cost_of(stack.serial, policy).seconds - none) / all : 0.0;
    const double again = share * stack.in_lanes.recover;
    // A block has two branches.
    switch (task.kind) {
      case TaskKind::recover:
        return again / 2;
      case TaskKind::gradient:
        return (stack.in_lanes.gradient + (policy == Policy::products ? again : 0.0)) / 2;
      case TaskKind::weight_gradient:
        return stack.in_lanes.weight_gradient / 2;
    }
    return 0.0;
  };
  const StackOptions usual;
  const TaskGraph graph = backward_schedule(
      keep_plan(policies),
      {.overlap = true, .lookahead = usual.lookahead, .deferred = usual.deferred});
  return simulate(graph, costs).makespan();
}

}  // namespace pareprop::plan
