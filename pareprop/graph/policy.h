#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace pareprop {

// What the forward pass keeps of one block, y1 = x1 + F(x2), y2 = x2 + G(y1).
enum class Policy {
  store,       // everything that the gradient needs: nothing is recomputed
  products,    // what matrix products read and made: GELU and probabilities are recomputed
  checkpoint,  // both inputs, x1 and x2: branches are recomputed, streams are not
  anchor,      // x2 only: G is recomputed without its last product, and x2 does not drift
  reverse,     // nothing: inputs are recovered from outputs
};

// All policies, in the order of the enum.
inline constexpr std::array kPolicies = {Policy::store, Policy::products, Policy::checkpoint,
                                         Policy::anchor, Policy::reverse};

// Whether the forward pass keeps the tapes, whole or lean.
constexpr bool keeps_tape(Policy policy) {
  return policy == Policy::store || policy == Policy::products;
}

// A name for a simple plan: one policy for all blocks, with or without overlap (plan_of() in
// stack_plan.h).
enum class Mode {
  stored,
  checkpoint,
  reprop,     // all reverse, one lane: ordinary reversible training
  pareprop,   // all reverse, recovery at the same time as gradients
  automatic,  // spelled `auto`: the plan that the planner finds for a budget
};

std::string_view name(Policy policy);
std::string_view name(Mode mode);

// Both throw std::invalid_argument with the known names.
Policy parse_policy(std::string_view text);
Mode parse_mode(std::string_view text);

const std::vector<Mode>& all_modes();
// All modes except `auto`: those with a fixed plan.
const std::vector<Mode>& preset_modes();
// Those of networks that cannot be reversed.
const std::vector<Mode>& plain_modes();

}  // namespace pareprop
