#pragma once

#include <cstdint>

#include "pareprop/ops/precision.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop {

// What a stack computes with. How it is trained is its StackPlan.
struct StackOptions {
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  // Of exact streams; 0: the default of StreamArithmetic.
  int fraction_bits = 0;
  // A recovered stream may differ from the forward pass by this much, relative to its largest
  // value, before the backward pass fails; 0: a default by precision. Exact streams may not differ
  // at all.
  double drift_limit = 0.0;
  // A parameter of a branch that gets no gradient is an error unless this is set.
  bool allow_unused_parameters = false;
  // With the number of the call, what randomness is drawn from when the call names no pass.
  std::uint64_t seed = 0;

  bool operator==(const StackOptions&) const = default;
};

}  // namespace pareprop
