#pragma once

#include <cstdint>
#include <string>

#include "pareprop/graph/policy.h"
#include "pareprop/memory/meter.h"
#include "pareprop/models/model.h"
#include "pareprop/trace/step_trace.h"

namespace pareprop::train {

struct TraceOptions {
  std::string title = "training step";
  Mode mode = Mode::pareprop;
  std::int64_t batch = 4;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  // The last one is recorded; those before it warm up. Mode `auto` has as many more before them as
  // it needs to choose.
  int steps = 3;
  std::uint64_t seed = 0;
};

struct TracedStep {
  StepTrace trace;
  memory::Usage memory;  // peaks of the recorded step
  double loss = 0.0;
};

// Trains `model` for a few steps, with AdamW, on random batches, and records the last one. The
// model's stack options and weights are left changed. Throws std::invalid_argument for steps or a
// batch below 1 and for a mode that the model has not, std::runtime_error when a loss or gradient
// is not finite.
TracedStep trace_step(models::Model& model, const TraceOptions& options);

}  // namespace pareprop::train
