#pragma once

#include <cstdint>

#include "pareprop/ops/precision.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop {

// The numerics of a stack. Its StackPlan says how it is trained.
struct StackOptions {
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  // Fraction bits of exact streams; 0: the default of StreamArithmetic.
  int fraction_bits = 0;
  // If a recovered stream differs from the forward pass by more than this, relative to its largest
  // value, the backward pass fails; 0: a default for each precision. Exact streams may not differ
  // at all.
  double drift_limit = 0.0;
  // A parameter of a branch that gets no gradient is an error unless this is set.
  bool allow_unused_parameters = false;
  // The seed of calls without a pass. The random key then has this seed and the number of the call.
  std::uint64_t seed = 0;

  bool operator==(const StackOptions&) const = default;
};

}  // namespace pareprop
