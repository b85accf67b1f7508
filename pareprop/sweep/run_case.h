#pragma once

#include <functional>
#include <vector>

#include "pareprop/sweep/case_shape.h"
#include "pareprop/sweep/measure.h"
#include "pareprop/sweep/result_row.h"

namespace pareprop::sweep {

struct RunOptions {
  int rounds = 5;
  int steps = 2;
  std::int64_t memory = 0;  // bytes that may be used; 0: what is free
  // What is going on, and which share of the case is done.
  std::function<void(const std::string& doing, double share)> on_progress = nullptr;
};

// A row for each mode and budget, in their order. Gradients are compared with those of ordinary
// autograd first, on the very batch or, where that does not fit in memory, on one sample; when they
// are wrong in any mode, nothing is timed and every row has its `error`. Modes that do not fit in
// memory, and budgets that no plan keeps to, have `fits` false. Throws std::invalid_argument for a
// case that cannot be.
std::vector<ResultRow> run_case(const Case& one, const CaseShape& shape, const RunOptions& options);

}  // namespace pareprop::sweep
