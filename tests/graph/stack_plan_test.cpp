#include "pareprop/graph/stack_plan.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop {
namespace {

TEST(StackPlan, OfEveryPreset) {
  EXPECT_EQ(plan_of(Mode::stored, 2), (StackPlan{.policies = {Policy::store, Policy::store}}));
  EXPECT_EQ(plan_of(Mode::checkpoint, 1), (StackPlan{.policies = {Policy::checkpoint}}));
  EXPECT_EQ(plan_of(Mode::reprop, 1), (StackPlan{.policies = {Policy::reverse}}));
  EXPECT_EQ(plan_of(Mode::pareprop, 1),
            (StackPlan{.policies = {Policy::reverse}, .overlap = true}));
  EXPECT_THROW(plan_of(Mode::automatic, 1), std::invalid_argument);
}

TEST(StackPlan, KeepsAsManyTapesAtTheTopAsAreAliveAnyway) {
  EXPECT_EQ(plan_of(Mode::reprop, 4).kept_tail(), 1);
  EXPECT_EQ(plan_of(Mode::pareprop, 4).kept_tail(), 3);
  EXPECT_EQ((StackPlan{.overlap = true, .lookahead = 5}.kept_tail()), 6);
  EXPECT_EQ((StackPlan{.overlap = true, .tail = 2}.kept_tail()), 2);
}

TEST(StepPlan, AllButStoredRecomputeWhatLiesBetween) {
  for (const Mode mode : preset_modes()) {
    const StepPlan plan = plan_of(mode, std::vector<int>{2, 0, 3});
    EXPECT_EQ(plan.recompute_between, mode != Mode::stored);
    EXPECT_EQ(plan.overlaps(), mode == Mode::pareprop);
    EXPECT_EQ(plan.stores_all(), mode == Mode::stored);
    EXPECT_EQ(nearest_mode(plan), mode);
    EXPECT_FALSE(plan.stacks[0].overlap) << "the first, and not the deepest";
    EXPECT_EQ(plan.stacks[2].overlap, mode == Mode::pareprop);
    EXPECT_EQ(plan.stacks[0].kept_tail(), 0);
    EXPECT_GT(plan.stacks[2].kept_tail(), 0);
    for (std::size_t i = 0; i < plan.stacks.size(); ++i) {
      check_plan(plan.stacks[i], static_cast<int>(plan.stacks[i].policies.size()));
    }
  }
}

TEST(StepPlan, OverlapsMostWhereActivationsAreSmall) {
  const StepPlan even = plan_of(Mode::pareprop, std::vector<int>{2, 2});
  EXPECT_FALSE(even.stacks[0].overlap);
  EXPECT_TRUE(even.stacks[1].overlap);
  EXPECT_FALSE(even.stacks[1].lookahead.has_value()) << "the last of the deepest";
  EXPECT_EQ(plan_of(Mode::pareprop, std::vector<int>{6}).stacks[0].lookahead, 1);
  EXPECT_FALSE(plan_of(Mode::pareprop, std::vector<int>{7}).stacks[0].lookahead.has_value());
}

}  // namespace
}  // namespace pareprop
