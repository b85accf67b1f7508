#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

struct VerifyOptions {
  // Without `auto`: plan::Planner makes its plans.
  std::vector<Mode> modes = preset_modes();
  std::vector<StepPlan> plans = {};  // each adds a row with mode `auto`
  std::int64_t batch = 2;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  std::uint64_t seed = 0;
};

struct VerifyRow {
  Mode mode = Mode::stored;
  // The largest |dg| / max(|g|, 1e-4 * largest |g| of the model) of all gradient tensors,
  // including those of inputs.
  double max_rel_error = 0.0;
  bool bit_identical = false;
  int missing_gradients = 0;  // without those that StackOptions::allow_unused_parameters allows
  double drift = 0.0;
  std::string error = {};  // the message of an exception in the step; empty: none
  bool holds = false;
};

// The largest max_rel_error that holds: 1e-10 (fp64), 1e-5 (fp32), 2e-2 (bf16).
double verify_tolerance(Precision precision);

// Says why a row does not hold; empty if it does.
std::string complaint(const VerifyRow& row, Precision precision);

// Runs one training step in each mode, with dropout, and compares the gradients with those of the
// same step in ordinary autograd. With exact arithmetic it compares with mode `stored`, and all
// bits must be the same. All steps use the same number of intra-op threads, so that sums are split
// in the same way. Drops the gradients of the network.
std::vector<VerifyRow> verify(Network& network, const VerifyOptions& options = {});

}  // namespace pareprop
