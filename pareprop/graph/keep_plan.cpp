#include "pareprop/graph/keep_plan.h"

#include <algorithm>

namespace pareprop {

KeepPlan keep_plan(const std::vector<Policy>& policies, const KeepOptions& options) {
  const int count = 2 * static_cast<int>(policies.size());
  KeepPlan plan;
  plan.branches.resize(static_cast<std::size_t>(count));
  auto at = [&](int k) -> BranchKeep& { return plan.branches[static_cast<std::size_t>(k)]; };

  for (int k = 0; k < count; ++k) {
    const Policy policy = policies[static_cast<std::size_t>(k / 2)];
    const bool is_x2 = k % 2 == 1;
    at(k).lean = policy == Policy::products;
    at(k).tape = keeps_tape(policy) || k >= count - options.tail;
    at(k).value = policy == Policy::checkpoint || (policy == Policy::anchor && is_x2);
  }

  // u[k] is read by the rebuilding of branch k-1 (its input) and by the recovery of u[k-2]. From
  // the bottom up, so that whether u[k-2] must be recovered is known. A kept tape keeps the value
  // below it too where somebody wants it: recovering it would need the branch's output again.
  auto wants = [&](int k) {
    const bool input_of_rebuilt = k >= 1 && k <= count && !at(k - 1).tape;
    const bool starts_recovery = k >= 2 && at(k - 2).wants_value && !at(k - 2).value;
    return input_of_rebuilt || starts_recovery;
  };
  for (int k = 0; k < count; ++k) {
    BranchKeep& keep = at(k);
    keep.wants_value = wants(k);
    if (k == 0 && options.recover_bottom && !keep.tape && !keep.value) keep.wants_value = true;
    if (keep.tape) keep.value = keep.wants_value;
    keep.value = keep.value && keep.wants_value;
  }
  plan.wants_y1 = wants(count);
  plan.wants_y2 = wants(count + 1);
  return plan;
}

}  // namespace pareprop
