#pragma once

#include <string>
#include <vector>

#include "pareprop/sweep/result_row.h"

namespace pareprop::sweep {

struct Plot {
  std::string id;  // of letters, digits and hyphens; no two plots of a page have the same
  std::string svg;
};

// Samples a second in every mode, for each network that ran with more than one batch size.
std::vector<Plot> throughput_by_batch(const std::vector<sweep::ResultRow>& rows);

// Speed of `pareprop` as a multiple of that of `reprop`, a bar for each case, a plot a family.
std::vector<Plot> gain_over_reprop(const std::vector<sweep::ResultRow>& rows);

// All modes and budgets of a case by activations and samples a second, and the frontier: what no
// other beats in both.
std::vector<Plot> throughput_by_memory(const std::vector<sweep::ResultRow>& rows);

// Activations in every mode, for each network that ran with more than one depth.
std::vector<Plot> memory_by_depth(const std::vector<sweep::ResultRow>& rows);

// Forward and backward pass of a step in every mode; then what the lanes were busy with in the
// backward pass of the stacks.
std::vector<Plot> time_by_phase(const std::vector<sweep::ResultRow>& rows);

}  // namespace pareprop::sweep
