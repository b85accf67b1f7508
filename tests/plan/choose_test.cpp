#include "pareprop/plan/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/plan/random_profile.h"

namespace pareprop::plan {
namespace {

using testing::below;
using testing::for_each_choice;
using testing::Random;
using testing::random_profile;

TEST(Choose, IsTheFastestOfAllChoicesWithinTheBudget) {
  Random random(20261116);
  int infeasible = 0, cases = 0;
  for (; cases < 250; ++cases) {
    const Profile profile = random_profile(random);
    const std::int64_t budget = 20 + below(random, 160);
    std::optional<Choice> best;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for_each_choice(profile, [&](const Choice& choice) {
      least = std::min(least, choice.peak);
      if (choice.peak > budget) return;
      if (!best || choice.seconds < best->seconds) best = choice;
    });
    const auto chosen = choose(profile, budget);
    ASSERT_EQ(chosen.has_value(), best.has_value()) << "case " << cases;
    EXPECT_EQ(smallest_budget(profile), least) << "case " << cases;
    if (!best) {
      ++infeasible;
      continue;
    }
    EXPECT_EQ(chosen->seconds, best->seconds) << "case " << cases;
    EXPECT_LE(chosen->peak, budget) << "case " << cases;
    const Choice again = evaluate(profile, chosen->overlap, chosen->policies);
    EXPECT_EQ(again.peak, chosen->peak);
    EXPECT_EQ(again.seconds, chosen->seconds);
  }
  EXPECT_GT(infeasible, 10);
  EXPECT_LT(infeasible, cases / 2);
}

Profile plain_profile(int depth) {
  StackProfile stack;
  stack.serial = {{{.kept = 100, .extra = 10, .cost = {2.0}},
                   {.kept = 60, .extra = 50, .cost = {2.25}},
                   {.kept = 20, .extra = 110, .cost = {2.5}},
                   {.kept = 10, .extra = 110, .cost = {2.75}},
                   {.kept = 0, .extra = 110, .cost = {3.0}}}};
  stack.overlapped = stack.serial;
  stack.live.assign(static_cast<std::size_t>(depth), 1000);
  return {.stacks = {stack}, .below = 1000, .rest = {1.0}};
}

TEST(Choose, StoresTheTopmostBlocksWhichAreUsedUpFirst) {
  const Profile profile = plain_profile(4);
  // Two stored tapes besides one that is rebuilt would be 310; above it they are gone by then.
  const auto choice = choose(profile, 1000 + 210);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->policies[0].back(), Policy::store);
  EXPECT_NE(choice->policies[0].front(), Policy::store);
}

TEST(Choose, TimeFallsAsTheBudgetRises) {
  const Profile profile = plain_profile(12);
  Seconds last{std::numeric_limits<double>::infinity()};
  for (std::int64_t budget = smallest_budget(profile); budget < 2300; budget += 7) {
    const auto choice = choose(profile, budget);
    ASSERT_TRUE(choice);
    EXPECT_LE(choice->seconds, last);
    last = choice->seconds;
  }
  EXPECT_EQ(last.count, 1.0 + 12 * 2.0);
  EXPECT_FALSE(choose(profile, smallest_budget(profile) - 1));
}

TEST(Choose, ManyBlocksOfSeveralKindsTakeNoLongTime) {
  Random random(7);
  Profile profile;
  for (const int depth : {3, 4, 40, 3}) {
    StackProfile stack;
    for (int p = 0; p < int{kPolicies.size()}; ++p) {
      const auto at = static_cast<std::size_t>(p);
      stack.serial[at] = {(4 - p) * 1'000'003 + below(random, 999), 4'000'000, {1.0 + 0.37 * p}};
    }
    stack.overlapped = stack.serial;
    stack.live.assign(static_cast<std::size_t>(depth), 0);
    profile.stacks.push_back(stack);
  }
  const auto choice = choose(profile, 60'000'000);
  ASSERT_TRUE(choice);
  EXPECT_LE(choice->peak, 60'000'000);
}

}  // namespace
}  // namespace pareprop::plan
