#pragma once

#include <span>
#include <string_view>

#include "pareprop/graph/policy.h"

namespace pareprop {

// How the branches of a stack are coupled: Note [The chain of branches].
enum class Coupling {
  reversible,  // two streams
  residual,    // one stream, to which every branch adds: the blocks of ordinary transformers
  sequential,  // one stream, which every branch replaces: blocks with norms behind their sums
};

constexpr bool is_reversible(Coupling coupling) { return coupling == Coupling::reversible; }

// The stream values that a stack has at its input, and at its output.
constexpr int streams(Coupling coupling) { return is_reversible(coupling) ? 2 : 1; }

// The value that branch `k` reads. The next one is the value that it makes.
constexpr int input_of(Coupling coupling, int k) { return is_reversible(coupling) ? k + 1 : k; }
constexpr int output_of(Coupling coupling, int k) { return input_of(coupling, k) + 1; }

// The branch that is recovered at position `s` from the top, of so many, or the position of branch
// `s`. Two streams are recovered downwards; in a block of one stream G reads what F makes, so F is
// run again first.
constexpr int recovered_at(Coupling coupling, int branches, int s) {
  return is_reversible(coupling) ? branches - 1 - s : (branches - 1 - s) ^ 1;
}

// The policies that its blocks may have, the leanest last. One stream has no inverse: there is
// nothing to anchor or to reverse.
constexpr std::span<const Policy> policies_of(Coupling coupling) {
  constexpr std::size_t kOfOneStream = 3;
  static_assert(kPolicies[kOfOneStream - 1] == Policy::checkpoint);
  const std::span<const Policy> all(kPolicies);
  return is_reversible(coupling) ? all : all.first(kOfOneStream);
}
constexpr Policy leanest_policy(Coupling coupling) { return policies_of(coupling).back(); }

}  // namespace pareprop
