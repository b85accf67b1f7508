#pragma once

#include <cstdint>

#include "pareprop/sweep/sweep.h"

namespace pareprop::sweep {

// What is known of a case before it is run, from shapes alone.
struct CaseShape {
  int depth = 0;
  std::int64_t tokens = 0;
  double forward_macs = 0.0;      // of a sample
  double weight_bytes = 0.0;      // of weights; gradients take as much
  double stored_bytes = 0.0;      // of activations of the whole batch, in mode stored
  double reversible_bytes = 0.0;  // in mode reprop

  // About what a step takes at its peak.
  double step_bytes(Mode mode) const;
  // Work that the case is, for the time left: as many products as it computes, about.
  double work(const Case& one, int timed_steps) const;
};

// Allocates no weights. Throws std::invalid_argument when there is no such model or a size does not
// fit.
CaseShape shape_of(const Case& one);

}  // namespace pareprop::sweep
