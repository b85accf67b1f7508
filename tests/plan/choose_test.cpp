#include "pareprop/plan/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace pareprop::plan {
namespace {

using Random = std::mt19937_64;

std::int64_t below(Random& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
}

// Seconds are small whole numbers: sums are exact, and ties happen.
PolicyCosts random_costs(Random& random) {
  PolicyCosts costs;
  for (BlockCost& cost : costs) {
    cost = {below(random, 30), below(random, 30), {static_cast<double>(below(random, 10))}};
  }
  return costs;
}

Profile random_profile(Random& random) {
  Profile profile;
  int blocks = 0;
  const auto stacks = static_cast<std::size_t>(1 + below(random, 3));
  for (std::size_t s = 0; s < stacks && blocks < 5; ++s) {
    StackProfile stack;
    const auto depth = std::min<std::int64_t>(1 + below(random, 4), 5 - blocks);
    blocks += static_cast<int>(depth);
    for (int i = 0; i < depth; ++i) stack.live.push_back(below(random, 40));
    stack.serial = random_costs(random);
    stack.overlapped = random_costs(random);
    stack.edge = below(random, 8);
    stack.above = below(random, 60);
    profile.stacks.push_back(std::move(stack));
  }
  profile.below = below(random, 60);
  profile.rest = {static_cast<double>(below(random, 20))};
  return profile;
}

// Every choice there is.
void for_each_choice(const Profile& profile, const std::function<void(const Choice&)>& visit) {
  constexpr int kCount = static_cast<int>(kPolicies.size());
  int choices = 1;
  for (const StackProfile& stack : profile.stacks) {
    for (int i = 0; i < stack.depth(); ++i) choices *= kCount;
  }
  for (const bool overlap : {false, true}) {
    for (int code = 0; code < choices; ++code) {
      std::vector<std::vector<Policy>> policies;
      int rest = code;
      for (const StackProfile& stack : profile.stacks) {
        auto& own = policies.emplace_back();
        for (int i = 0; i < stack.depth(); ++i, rest /= kCount) {
          own.push_back(kPolicies[static_cast<std::size_t>(rest % kCount)]);
        }
      }
      visit(evaluate(profile, overlap, std::move(policies)));
    }
  }
}

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
