#include "pareprop/graph/keep_plan.h"

#include <algorithm>

namespace pareprop {
namespace {

BranchKeep& at(KeepPlan& plan, int k) { return plan.branches[static_cast<std::size_t>(k)]; }

void keep_values_of_two_streams(KeepPlan& plan, const std::vector<Policy>& policies,
                                bool recover_bottom) {
  const int count = plan.count();
  for (int k = plan.first; k < count; ++k) {
    const Policy policy = policies[static_cast<std::size_t>(k / 2)];
    const bool is_x2 = k % 2 == 1;
    at(plan, k).value = policy == Policy::checkpoint || (policy == Policy::anchor && is_x2);
  }
  // u[k] is read by the rebuilding of branch k-1 (its input) and by the recovery of u[k-2]. From
  // the bottom up, so that whether u[k-2] must be recovered is known. A kept tape keeps the value
  // below it too where somebody wants it: recovering it would need the branch's output again.
  const auto wants = [&](int k) {
    const bool input_of_rebuilt = k - 1 >= plan.first && k <= count && !plan.at(k - 1).tape;
    const bool starts_recovery =
        k - 2 >= plan.first && plan.at(k - 2).wants_value && !plan.at(k - 2).value;
    return input_of_rebuilt || starts_recovery;
  };
  for (int k = plan.first; k < count; ++k) {
    BranchKeep& keep = at(plan, k);
    keep.wants_value = wants(k);
    if (k == 0 && recover_bottom && !keep.tape && !keep.value) keep.wants_value = true;
    if (keep.tape) keep.value = keep.wants_value;
    keep.value = keep.value && keep.wants_value;
  }
  plan.wants_y1 = wants(count);
  plan.wants_y2 = wants(count + 1);
}

// F makes again what G reads, unless its tape is there.
void keep_values_of_one_stream(KeepPlan& plan) {
  for (int k = plan.first; k < plan.count(); ++k) {
    BranchKeep& keep = at(plan, k);
    keep.wants_value = !keep.tape;
    keep.value = keep.wants_value && (k % 2 == 0 || plan.at(k - 1).tape);
  }
}

}  // namespace

bool KeepPlan::tape_only(int k) const {
  if (at(k).tape) return false;
  if (is_reversible(coupling)) return at(k).value || !at(k).wants_value;
  return k + 1 == count() || at(k + 1).value || !at(k + 1).wants_value;
}

KeepPlan keep_plan(const std::vector<Policy>& policies, const KeepOptions& options) {
  const int count = 2 * static_cast<int>(policies.size());
  KeepPlan plan{.coupling = options.coupling,
                .first = std::min(2 * options.first_block, count),
                .branches = std::vector<BranchKeep>(static_cast<std::size_t>(count))};
  for (int k = plan.first; k < count; ++k) {
    const Policy policy = policies[static_cast<std::size_t>(k / 2)];
    at(plan, k).lean = policy == Policy::products;
    at(plan, k).tape = keeps_tape(policy) || k >= count - options.tail;
  }
  if (is_reversible(plan.coupling)) {
    keep_values_of_two_streams(plan, policies, options.recover_bottom);
  } else {
    keep_values_of_one_stream(plan);
  }
  return plan;
}

}  // namespace pareprop
