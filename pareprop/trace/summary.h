#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// How much of a recomputation was hidden.
struct Overlap {
  double recover = 0.0;  // seconds that recover tasks took
  double beside = 0.0;   // of them, those in which a gradient (of either kind) ran on another lane

  double share() const { return recover > 0.0 ? beside / recover : 0.0; }
};

struct StepSummary {
  double seconds = 0.0;
  // Seconds of the spans of each kind that the step has, in the order of the kinds. Spans that ran
  // at the same time all count.
  std::vector<std::pair<StepKind, double>> kinds = {};
  Overlap overlap = {};
  std::vector<Overlap> stacks = {};     // one for each of the network's
  std::int64_t sampled_peak_bytes = 0;  // of the samples: what lay between them may have been more
};

StepSummary summarise(const StepTrace& trace);

// A JSON object: step_ms, recover_ms, beside_gradient_ms, overlap (a share, null where nothing was
// recovered), stages [{stage, recover_ms, beside_gradient_ms, overlap}], kinds_ms {"forward": ...},
// sampled_peak_bytes.
std::string to_json(const StepSummary& summary);

}  // namespace pareprop
