#pragma once

#include <cstdint>
#include <functional>
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

// What is left of a budget when a step is run by this choice; negative: it takes more. None: no
// other choice is asked for.
using SpareBytes = std::function<std::optional<std::int64_t>(const Choice&)>;

// Asks for choices one after another. The profile says which is the fastest under a budget, `spare`
// what it really takes. Where they differ, the search gets another budget: first moved by the
// difference, then halfway between one whose choice fits and one whose choice does not.
void close_in(const Profile& profile, std::int64_t budget, bool overlap, const SpareBytes& spare);

// The least budget for which choose() finds something.
std::int64_t smallest_budget(const Profile& profile);
std::int64_t smallest_budget(const Profile& profile, bool overlap);

}  // namespace pareprop::plan
