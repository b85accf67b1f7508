#include "pareprop/graph/stack_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pareprop {

int StackPlan::ahead(bool streams, Coupling coupling) const {
  if (is_reversible(coupling)) return lookahead.value_or(streams ? 1 : 2);
  return std::max(lookahead.value_or(2), streams ? 2 : 1);
}

int StackPlan::kept_tail(bool streams, Coupling coupling) const {
  if (tail) return *tail;
  const int alive = overlap ? ahead(streams, coupling) + 1 : 1;
  if (is_reversible(coupling)) return alive;
  constexpr int kBlock = 2;
  return std::max(kBlock, alive / kBlock * kBlock);
}

bool StepPlan::overlaps() const {
  return std::any_of(stacks.begin(), stacks.end(), [](const StackPlan& s) { return s.overlap; });
}

namespace {

bool all_blocks_are(const StepPlan& plan, Policy wanted) {
  return std::all_of(plan.stacks.begin(), plan.stacks.end(), [&](const StackPlan& stack) {
    return std::all_of(stack.policies.begin(), stack.policies.end(),
                       [&](Policy policy) { return policy == wanted; });
  });
}

}  // namespace

bool StepPlan::stores_all() const {
  return !recompute_between && all_blocks_are(*this, Policy::store);
}

Mode nearest_mode(const StepPlan& plan) {
  if (plan.stores_all()) return Mode::stored;
  if (plan.overlaps()) return Mode::pareprop;
  return all_blocks_are(plan, Policy::checkpoint) ? Mode::checkpoint : Mode::reprop;
}

StackPlan plan_of(Mode mode, int depth) {
  if (mode == Mode::automatic) {
    throw std::invalid_argument(
        "mode auto has no fixed plan: let plan::Planner find a plan for a number of bytes and give "
        "that plan to the stack, or choose stored, checkpoint, reprop or pareprop");
  }
  const Policy policy = mode == Mode::stored       ? Policy::store
                        : mode == Mode::checkpoint ? Policy::checkpoint
                                                   : Policy::reverse;
  return {.policies = std::vector<Policy>(static_cast<std::size_t>(depth), policy),
          .overlap = mode == Mode::pareprop};
}

namespace {

// Of several the last, with the smallest activations.
std::size_t deepest_stack(const StepPlan& plan) {
  const auto deepest = std::max_element(
      plan.stacks.rbegin(), plan.stacks.rend(),
      [](const StackPlan& a, const StackPlan& b) { return a.policies.size() < b.policies.size(); });
  return static_cast<std::size_t>(plan.stacks.rend() - deepest) - 1;
}

// The first stage of Swin and MViT has the largest activations, and few blocks, with which two
// lanes gain little.
void be_lean_in_the_first_stage(StepPlan& plan) {
  if (deepest_stack(plan) > 0) plan.stacks.front().overlap = false;
}

// The inputs of so few blocks, as checkpoints, take less than the tapes of recovery that is far
// ahead.
void be_lean_if_shallow(StackPlan& stack) {
  constexpr std::size_t kFewBlocks = 6;
  if (stack.policies.size() <= kFewBlocks) stack.lookahead = 1;
}

void only_the_last_keeps_a_tail(StepPlan& plan) {
  for (std::size_t i = 0; i + 1 < plan.stacks.size(); ++i) plan.stacks[i].tail = 0;
}

void the_deepest_keeps_a_tail_too(StepPlan& plan) {
  plan.stacks[deepest_stack(plan)].tail = std::nullopt;
}

}  // namespace

StepPlan plan_of(Mode mode, const std::vector<int>& depths) {
  // What lies between the stages of Swin and MViT would be most of what a reversible step keeps.
  StepPlan plan{.recompute_between = mode != Mode::stored};
  for (const int depth : depths) plan.stacks.push_back(plan_of(mode, depth));
  only_the_last_keeps_a_tail(plan);
  if (mode == Mode::pareprop && !plan.stacks.empty()) {
    be_lean_in_the_first_stage(plan);
    the_deepest_keeps_a_tail_too(plan);
    if (plan.stacks.size() == 1) be_lean_if_shallow(plan.stacks.front());
  }
  return plan;
}

StepPlan recomputing_plan(bool overlap, const std::vector<int>& depths, Coupling coupling) {
  StepPlan plan = plan_of(overlap ? Mode::pareprop : Mode::reprop, depths);
  for (StackPlan& stack : plan.stacks) {
    std::fill(stack.policies.begin(), stack.policies.end(), leanest_policy(coupling));
  }
  return plan;
}

StepPlan uniform_plan(Policy policy, bool overlap, const std::vector<int>& depths) {
  StepPlan plan;
  for (const int depth : depths) {
    plan.stacks.push_back({.policies = std::vector<Policy>(static_cast<std::size_t>(depth), policy),
                           .overlap = overlap});
  }
  only_the_last_keeps_a_tail(plan);
  return plan;
}

void check_plan(const StackPlan& plan, int depth, Coupling coupling) {
  const auto fail = [](const std::string& expected, int got) {
    throw std::invalid_argument("stack plan: expected " + expected + ", got " +
                                std::to_string(got));
  };
  if (static_cast<int>(plan.policies.size()) != depth) {
    fail("one policy for each of " + std::to_string(depth) + " blocks",
         static_cast<int>(plan.policies.size()));
  }
  const auto allowed = policies_of(coupling);
  for (const Policy policy : plan.policies) {
    if (std::find(allowed.begin(), allowed.end(), policy) != allowed.end()) continue;
    const std::string what = coupling == Coupling::sequential
                                 ? "a network with norms behind its sums"
                                 : "a plain network";
    const std::string instead = coupling == Coupling::sequential
                                    ? "; such a network cannot be made reversible"
                                    : ", or the reversible network, which 'pareprop convert "
                                      "--reversible' makes of the weights of a plain ViT, Swin or "
                                      "RoBERTa with norms first";
    throw std::invalid_argument(what + " cannot be trained with policy " +
                                std::string(name(policy)) +
                                ": its blocks have no inverse. Use mode stored, checkpoint or auto "
                                "(policies store, products and checkpoint)" +
                                instead);
  }
  if (plan.ahead() < 0) fail("a lookahead of 0 or more branches", plan.ahead());
  if (plan.deferred < 0) fail("0 or more deferred branches", plan.deferred);
  if (plan.lanes < 2 || plan.lanes > 3) fail("2 or 3 lanes", plan.lanes);
  if (plan.tail && (*plan.tail < 0 || *plan.tail > 2 * depth)) {
    fail("a tail of 0 to " + std::to_string(2 * depth) + " branches", *plan.tail);
  }
}

}  // namespace pareprop
