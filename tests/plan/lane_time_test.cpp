#include "pareprop/plan/lane_time.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pareprop::plan {
namespace {

// Seconds of one lane: 2 of gradients, up to 1 of recomputation.
StackProfile profile_of(const LaneTimes& in_lanes) {
  StackProfile stack;
  for (const Policy policy : kPolicies) {
    const double again = policy == Policy::store        ? 0.0
                         : policy == Policy::products   ? 0.125
                         : policy == Policy::checkpoint ? 0.75
                         : policy == Policy::anchor     ? 0.875
                                                        : 1.0;
    stack.serial[static_cast<std::size_t>(policy)].cost = {2.0 + again};
  }
  stack.in_lanes = in_lanes;
  return stack;
}

TEST(LaneTime, StoredBlocksAreAChainOfGradientsAndTheLastWeights) {
  const StackProfile stack = profile_of({.recover = 9.0, .gradient = 2.0, .weight_gradient = 1.0});
  const std::vector<Policy> stored(6, Policy::store);
  EXPECT_DOUBLE_EQ(seconds_in_lanes(stack, stored).count, 6 * 2.0 + 0.5);
  const std::vector<Policy> products(6, Policy::products);
  EXPECT_DOUBLE_EQ(seconds_in_lanes(stack, products).count, 6 * (2.0 + 9.0 / 8) + 0.5);
}

TEST(LaneTime, RecoveryHidesBesideGradientsButAtTheTop) {
  const StackProfile stack = profile_of({.recover = 1.0, .gradient = 2.0, .weight_gradient = 0.0});
  const std::vector<Policy> reversed(12, Policy::reverse);
  EXPECT_DOUBLE_EQ(seconds_in_lanes(stack, reversed).count, 0.5 + 12 * 2.0);
}

TEST(LaneTime, IsNeverLessThanTheChainOrHalfOfAllTasksNorMoreThanTheirSum) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> seconds(0.1, 3.0);
  std::uniform_int_distribution<std::size_t> any(0, kPolicies.size() - 1), blocks(1, 16);
  for (int i = 0; i < 200; ++i) {
    const LaneTimes times{seconds(random), seconds(random), seconds(random)};
    const StackProfile stack = profile_of(times);
    std::vector<Policy> policies(blocks(random));
    for (Policy& policy : policies) policy = kPolicies[any(random)];
    double chain = 0.0, sum = 0.0;
    for (const Policy policy : policies) {
      const double again = (cost_of(stack.serial, policy).cost.count - 2.0) * times.recover;
      chain += times.gradient + (policy == Policy::products ? again : 0.0);
      sum += times.gradient + times.weight_gradient + again;
    }
    const double found = seconds_in_lanes(stack, policies).count;
    EXPECT_GE(found, chain * (1.0 - 1e-9));
    EXPECT_GE(found, sum / 2 * (1.0 - 1e-9));
    EXPECT_LE(found, sum * (1.0 + 1e-9));
  }
}

}  // namespace
}  // namespace pareprop::plan
