#pragma once

#include <cstdint>
#include <string>

#include "pareprop/data/prefetch.h"
#include "pareprop/distributed/gradient_buckets.h"
#include "pareprop/distributed/process_group.h"
#include "pareprop/models/model.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/train/adamw.h"
#include "pareprop/train/ema.h"

namespace pareprop::train {

// Who takes part in a step; all outlive it.
struct StepParts {
  models::Model& model;
  AdamW& optimizer;
  Ema* average;  // null: none
  distributed::GradientBuckets& buckets;
  distributed::ProcessGroup& group;
  TraceRecorder* recorder = nullptr;  // of this step; null: it is not recorded
};

struct StepOptions {
  std::int64_t batch = 1;       // samples of a micro-step, in each process
  std::int64_t accumulate = 1;  // micro-steps
  double clip = 0.0;
  std::uint64_t seed = 0;  // of dropout
};

struct StepOutcome {
  double loss = 0.0;      // mean over the rows of all processes
  double accuracy = 0.0;  // of the same
  double gradient_norm = 0.0;
  bool stop = false;       // a process wants to
  std::string not_finite;  // what is: "the loss", or a gradient. The weights were not changed then
};

// One step of the optimizer: micro-steps whose gradients are added up, the mean over all processes,
// clipping, AdamW. A row counts the same whichever micro-step or process it is in, so processes
// that share a batch compute what one that has it whole computes.
StepOutcome run_step(const StepParts& parts, const StepOptions& options, data::Prefetcher& batches,
                     double learning_rate, bool wants_stop);

}  // namespace pareprop::train
