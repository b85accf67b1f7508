#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pareprop/memory/meter.h"
#include "pareprop/models/model.h"
#include "pareprop/trace/step_trace.h"

namespace pareprop::train {

struct RecordOptions {
  std::string title = "training step";
  // Of the model; none: that of mode pareprop, or of stored where the network is plain.
  std::optional<StepPlan> plan = std::nullopt;
  std::int64_t batch = 4;
  std::int64_t parts = 1;  // equal ones that the batch is cut into, one after another
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  // The last one is recorded; those before it warm up.
  int steps = 3;
  std::uint64_t seed = 0;
};

struct RecordedStep {
  StepTrace trace;
  memory::Usage memory;  // peaks of the recorded step
  double loss = 0.0;
};

// Trains `model` for a few steps, with AdamW, on random batches, and records the last one. The
// model's weights are left changed. Throws std::invalid_argument for steps or a batch below 1, for
// parts that are not equal and for a plan that is not the model's, std::runtime_error when a loss
// or gradient is not finite.
RecordedStep record_step(models::Model& model, const RecordOptions& options);

}  // namespace pareprop::train
