#pragma once

#include <cstddef>
#include <vector>

#include "pareprop/graph/coupling.h"

namespace pareprop {

// What the forward pass keeps for the backward pass, and what must be recovered, per branch k of
// Note [The chain of branches].
struct BranchKeep {
  bool tape = false;   // the tape is kept from the forward pass
  bool lean = false;   // of it only what matrix products read and made
  bool value = false;  // u[k], or v[k], is kept from the forward pass
  bool wants_value =
      false;  // the backward pass uses this value; if it is not kept, a recovery must make it

  bool needs_recover() const { return !tape || (wants_value && !value); }
};

struct KeepPlan {
  Coupling coupling = Coupling::reversible;
  int first = 0;                     // the lowest branch of the backward pass
  std::vector<BranchKeep> branches;  // 2 per block, in forward order
  bool wants_y1 = false;             // the backward pass uses the outputs of the stack, u[2N] ...
  bool wants_y2 = false;             // ... and u[2N+1]

  int depth() const { return static_cast<int>(branches.size() / 2); }
  int count() const { return static_cast<int>(branches.size()); }
  // Branches that the backward pass comes to.
  int steps() const { return count() - first; }
  const BranchKeep& at(int k) const { return branches[static_cast<std::size_t>(k)]; }
  // recover(k) rebuilds a tape whose output nobody reads.
  bool tape_only(int k) const;
};

struct KeepOptions {
  // Topmost branches whose tape is kept from the forward pass whatever their policy: they are
  // used first in the backward pass, while nothing else is alive.
  int tail = 0;
  // Recover u[0] too, although no gradient needs it: x1 - x2 there measures the drift.
  bool recover_bottom = true;
  Coupling coupling = Coupling::reversible;
  // Blocks below this one have nothing to train, and nobody wants the gradient of the input: the
  // backward pass ends above them.
  int first_block = 0;
};

// REQUIRES: every policy is one of policies_of(options.coupling).
KeepPlan keep_plan(const std::vector<Policy>& policies, const KeepOptions& options = {});

}  // namespace pareprop
