#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pareprop/graph/schedule.h"

namespace pareprop::testing {

inline std::vector<Policy> random_policies(std::mt19937& random, int depth,
                                           Coupling coupling = Coupling::reversible) {
  const auto allowed = policies_of(coupling);
  std::uniform_int_distribution<std::size_t> any(0, allowed.size() - 1);
  std::vector<Policy> policies;
  for (int i = 0; i < depth; ++i) policies.push_back(allowed[any(random)]);
  return policies;
}

// A stack, the schedule of its backward pass and what they were made from.
struct RandomCase {
  int depth = 0;
  ScheduleOptions options;
  int ready = 0;
  std::vector<Policy> policies;
  KeepPlan plan;
  std::optional<KeepPlan> below;
  TaskGraph graph;

  int branches() const { return static_cast<int>(plan.branches.size()); }
  // How far recovery may be ahead, and how many weight gradients may wait: 0 without overlap, but
  // for the branch that a block of one stream recovers before the first gradient.
  int lookahead() const { return options.overlap ? std::max(options.lookahead, least()) : least(); }
  int deferred() const { return options.overlap ? options.deferred : 0; }
  int least() const { return is_reversible(plan.coupling) ? 0 : 1; }
  // Position from the top, over both stacks.
  int step(const Task& task) const {
    const KeepPlan& own = task.stack == 0 ? plan : *below;
    const int above = task.stack == 0 ? 0 : plan.steps();
    if (task.kind != TaskKind::recover) return above + own.count() - 1 - task.branch;
    return above + recovered_at(own.coupling, own.count(), task.branch);
  }

  std::string describe() const {
    std::string text =
        "depth " + std::to_string(depth) + ", overlap " + std::to_string(options.overlap) +
        ", lookahead " + std::to_string(options.lookahead) + ", deferred " +
        std::to_string(options.deferred) + ", lanes " + std::to_string(options.lanes) + ", fixed " +
        std::to_string(options.rule == LaneRule::fixed) + ", ready " + std::to_string(ready) +
        ", policies";
    for (Policy policy : policies) text += " " + std::string(name(policy));
    text += is_reversible(plan.coupling) ? "" : ", one stream";
    text += ", from branch " + std::to_string(plan.first);
    if (below) text += ", below " + std::to_string(below->depth());
    return text;
  }
};

// The rest of the case at random; with probability 1/3 all blocks are as lean as can be.
inline RandomCase random_case(std::mt19937& random, int depth, const ScheduleOptions& options) {
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  RandomCase result;
  result.depth = depth;
  result.options = options;
  const Coupling coupling = draw(0, 1) == 0 ? Coupling::reversible : Coupling::residual;
  result.policies = draw(0, 2) == 0 ? std::vector<Policy>(static_cast<std::size_t>(depth),
                                                          leanest_policy(coupling))
                                    : random_policies(random, depth, coupling);
  const int tail = draw(0, 2) == 0 ? draw(0, 2 * depth) : 0;
  const int first_block = draw(0, 3) == 0 ? draw(0, depth) : 0;
  result.plan = keep_plan(result.policies, {.tail = tail,
                                            .recover_bottom = draw(0, 1) == 1,
                                            .coupling = coupling,
                                            .first_block = first_block});
  if (options.overlap && draw(0, 1) == 0) {
    result.ready = std::min(result.lookahead(), result.plan.steps());
  }
  if (draw(0, 1) == 0) {
    result.below = keep_plan(random_policies(random, draw(0, 4), coupling), {.coupling = coupling});
  }
  result.graph = backward_schedule(result.plan, options, result.ready,
                                   result.below ? &*result.below : nullptr);
  return result;
}

// Every combination of the schedule's options.
inline std::vector<ScheduleOptions> all_schedule_options() {
  std::vector<ScheduleOptions> all = {{.overlap = false}, {.overlap = false, .deferred = 2}};
  for (int lookahead = 0; lookahead <= 5; ++lookahead) {
    for (int deferred = 0; deferred <= 4; ++deferred) {
      for (int lanes = 2; lanes <= 3; ++lanes) {
        for (auto rule : {LaneRule::any, LaneRule::fixed}) {
          all.push_back({.overlap = true,
                         .lookahead = lookahead,
                         .deferred = deferred,
                         .lanes = lanes,
                         .rule = rule});
        }
      }
    }
  }
  return all;
}

}  // namespace pareprop::testing
