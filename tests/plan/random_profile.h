#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "pareprop/plan/choose.h"

namespace pareprop::plan::testing {

using Random = std::mt19937_64;

inline std::int64_t below(Random& random, std::int64_t n) {
  return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random);
}

// Seconds are small whole numbers: sums are exact, and ties happen.
inline PolicyCosts random_costs(Random& random) {
  PolicyCosts costs;
  for (BlockCost& cost : costs) {
    cost = {below(random, 30), below(random, 30), {static_cast<double>(below(random, 10))}};
  }
  return costs;
}

// Of at most so many blocks.
inline Profile random_profile(Random& random, std::int64_t most = 5) {
  Profile profile;
  std::int64_t blocks = 0;
  const auto stacks = static_cast<std::size_t>(1 + below(random, 3));
  for (std::size_t s = 0; s < stacks && blocks < most; ++s) {
    StackProfile stack;
    const auto depth = std::min<std::int64_t>(1 + below(random, 4), most - blocks);
    blocks += depth;
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
inline void for_each_choice(const Profile& profile,
                            const std::function<void(const Choice&)>& visit) {
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

}  // namespace pareprop::plan::testing
