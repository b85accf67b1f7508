#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "pareprop/graph/coupling.h"
#include "pareprop/plan/amounts.h"

namespace pareprop::plan {

// What one block of a stack costs under a policy. `Cost` is Macs as a dry step counts them, or
// Seconds as a search compares them.
template <typename Cost>
struct BlockCostIn {
  std::int64_t kept = 0;   // bytes from its forward pass on until its gradient, beyond the leanest
  std::int64_t extra = 0;  // bytes at its highest while its own backward pass runs
  Cost cost = {};          // of its backward pass, recomputation included
};

// One cost a policy, in the order of kPolicies.
template <typename Cost>
using PolicyCostsIn = std::array<BlockCostIn<Cost>, kPolicies.size()>;

template <typename Cost>
const BlockCostIn<Cost>& cost_of(const PolicyCostsIn<Cost>& costs, Policy policy) {
  return costs[static_cast<std::size_t>(policy)];
}

// Note [The model of the peak]
// The backward pass goes down from the top block of the last stack. When it comes to a block, what
// is kept of blocks above is gone, and what is kept of this one and of all below is there. So with
// blocks numbered from the input of the network on,
//     bytes while block i runs back   live[i] + kept[0] + ... + kept[i] + extra[i]
// where live[i] is what is alive then whatever the policies are: weights, optimizer, the gradients
// of what lies above, streams, stage boundaries, data. The peak is the largest of these sums, and
// of those between the stacks (`above`) and after the last one (`below`).

// Seconds of the tasks of one block, summed by kind, while both lanes run. None: not measured.
struct LaneTimes {
  double recover = 0.0, gradient = 0.0, weight_gradient = 0.0;

  bool known() const { return gradient > 0.0; }
  bool operator==(const LaneTimes&) const = default;
};

// Consecutive equal blocks.
template <typename Cost>
struct StackProfileIn {
  Coupling coupling = Coupling::reversible;
  int first = 0;  // the lowest block that the backward pass comes to; those below cost nothing
  PolicyCostsIn<Cost> serial;  // of policies_of(coupling)
  PolicyCostsIn<Cost> overlapped;
  LaneTimes in_lanes = {};
  std::vector<std::int64_t> live;  // one a block
  std::int64_t edge = 0;           // more bytes, if it stores its tape and the block below does not
  // At the highest between the backward pass of the stack above and that of this one, what is kept
  // not counted. Of the last stack: the forward pass and the head.
  std::int64_t above = 0;

  int depth() const { return static_cast<int>(live.size()); }
  const PolicyCostsIn<Cost>& costs(bool overlap) const { return overlap ? overlapped : serial; }
  const BlockCostIn<Cost>& cost(bool overlap, int block, Policy policy) const {
    static constexpr BlockCostIn<Cost> kNothing{};
    return block < first ? kNothing : cost_of(costs(overlap), policy);
  }
  // Of one block: what all that is recomputed costs more than nothing that is.
  Cost recomputation() const {
    return cost_of(serial, leanest_policy(coupling)).cost - cost_of(serial, Policy::store).cost;
  }
};

template <typename Cost>
struct ProfileIn {
  std::vector<StackProfileIn<Cost>> stacks;  // from the input of the network on
  std::int64_t below = 0;                    // at the highest when all stacks have run back
  Cost rest = {};                            // of everything but the backward passes of stacks
};

using WorkProfile = ProfileIn<Macs>;
using Profile = ProfileIn<Seconds>;
using StackProfile = StackProfileIn<Seconds>;
using BlockCost = BlockCostIn<Seconds>;
using PolicyCosts = PolicyCostsIn<Seconds>;

}  // namespace pareprop::plan
