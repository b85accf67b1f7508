#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/sweep/results_file.h"
#include "pareprop/sweep/run_case.h"

namespace pareprop::sweep {

struct SweepProgress {
  std::size_t number = 1;  // of the case, from one
  std::size_t cases = 1;
  std::string doing = {};     // "vit_tiny, batch 4, fp32, 2 threads: reprop, round 1 of 5"
  double seconds_left = 0.0;  // about; below 0 as long as nothing is known
};

struct SweepOptions {
  std::int64_t memory = 0;  // bytes that may be used; 0: what is free
  std::function<void(const SweepProgress&)> on_progress = nullptr;
  // Called with the rows of each case as it ends, also of one that was there already.
  std::function<void(const Case&, const std::vector<ResultRow>&, bool was_there)> on_case = nullptr;
};

struct SweepResult {
  std::vector<ResultRow> rows = {};     // of all cases, in their order
  std::vector<std::string> wrong = {};  // cases whose gradients are wrong
  std::size_t skipped = 0;              // cases that were there already
};

// Runs every case, and appends it to `file` (may be null) as it ends. A case all of whose modes and
// budgets are in the file is not run again; one that lacks some, or whose gradients were wrong, is
// run whole, for only modes that took turns can be compared. Throws std::invalid_argument, before
// anything is run, for a sweep or a case that cannot be.
SweepResult run_sweep(const Sweep& sweep, ResultsFile* file, const SweepOptions& options);

}  // namespace pareprop::sweep
