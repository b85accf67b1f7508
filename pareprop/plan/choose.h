#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pareprop/plan/profile.h"

namespace pareprop::plan {

// How a network's stacks are trained, and what that costs by a profile.
struct Choice {
  bool overlap = false;
  std::vector<std::vector<Policy>> policies;  // of each block of each stack
  std::int64_t peak = 0;
  Seconds seconds = {};
};

// Peak and seconds of given policies: Note [The model of the peak].
Choice evaluate(const Profile& profile, bool overlap, std::vector<std::vector<Policy>> policies);

// The fastest choice whose peak is at most `budget`; none when even the leanest is above. Of
// equally fast ones, one that keeps least. Exact: no other choice is faster by the profile.
std::optional<Choice> choose(const Profile& profile, std::int64_t budget);
// The same among those that overlap, or that do not.
std::optional<Choice> choose(const Profile& profile, std::int64_t budget, bool overlap);

// The least budget for which choose() finds something.
std::int64_t smallest_budget(const Profile& profile);
std::int64_t smallest_budget(const Profile& profile, bool overlap);

}  // namespace pareprop::plan
