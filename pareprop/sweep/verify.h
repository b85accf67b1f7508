#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/reversible/network.h"

namespace pareprop {

struct VerifyOptions {
  // `auto` is not among them: its plans are made by plan::Planner.
  std::vector<Mode> modes = preset_modes();
  std::vector<StepPlan> plans = {};  // each is one more row, of mode `auto`
  std::int64_t batch = 2;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  std::uint64_t seed = 0;
};

struct VerifyRow {
  Mode mode = Mode::stored;
  // Largest |dg| / max(|g|, 1e-4 * largest |g| of the model) over all gradient tensors, the input's
  // too.
  double max_rel_error = 0.0;
  bool bit_identical = false;
  int missing_gradients = 0;
  double drift = 0.0;
  std::string error = {};  // what the backward pass threw, if it did
  bool holds = false;
};

// What max_rel_error may be: 1e-10 (fp64), 1e-5 (fp32), 2e-2 (bf16).
double verify_tolerance(Precision precision);

// Why a row does not hold, in words; empty when it does.
std::string complaint(const VerifyRow& row, Precision precision);

// Gradients of one training step in each mode, dropout on, compared with the same step through
// ordinary autograd or, for exact arithmetic, in mode `stored`, whose bits every mode must have.
// All run with the same intra-op threads, so that sums are split alike. Drops the network's
// gradients.
std::vector<VerifyRow> verify(Network& network, const VerifyOptions& options = {});

}  // namespace pareprop
