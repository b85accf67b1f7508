#pragma once

#include <cstdint>
#include <string>

#include "pareprop/device/torch_error.h"
#include "pareprop/distributed/gradient_buckets.h"
#include "pareprop/distributed/shares.h"
#include "pareprop/models/model.h"
#include "pareprop/optim/optimizer.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/train/batch_feed.h"
#include "pareprop/train/ema.h"
#include "pareprop/train/inside_updates.h"

namespace pareprop::train {

// Who takes part in a step; all outlive it.
struct StepParts {
  models::Model& model;
  optim::Optimizer& optimizer;  // of shares.own()
  Ema* average;                 // null: none
  distributed::GradientBuckets& buckets;
  distributed::Shares& shares;
  TraceRecorder* recorder = nullptr;  // of this step; null: it is not recorded
  InsideUpdates* inside = nullptr;    // null: the optimizer steps after the backward pass
};

struct StepOptions {
  std::int64_t batch = 1;       // samples of a batch, in each process
  std::int64_t accumulate = 1;  // batches
  double clip = 0.0;
  std::uint64_t seed = 0;  // of dropout
};

struct StepOutcome {
  double loss = 0.0;      // mean over the rows of all processes
  double accuracy = 0.0;  // of the same
  double gradient_norm = 0.0;
  bool stop = false;  // a process wants to
  // What is: "the loss", or a gradient. The weights were not changed then, unless it is half taken.
  std::string not_finite;
  // The optimizer had stepped inside the backward pass when a gradient came that is not finite:
  // some weights are those of before the step, some are not.
  bool half_taken = false;
};

// A step failed after the optimizer had changed some of the weights: those of before are on disk
// only.
class HalfTakenStep : public Failure {
 public:
  using Failure::Failure;
};

// One step of the optimizer: micro-steps, as many as the batches have parts, whose gradients are
// added up, the mean over all processes, clipping, the optimizer. On an accelerator forward and
// backward passes are issued without waiting for it; then all that the step has to know is read in
// one transfer. A row counts the same whichever micro-step or process it is in, so processes that
// share a batch compute what one that has it whole computes. Where the optimizer's state is
// divided, each process updates its own parameters and gets the others' (Note [Shares]).
//
// With `inside` there is one micro-step, and its backward pass steps the optimizer. Clipping needs
// the norm of all gradients before the first weight changes, so the backward pass runs twice then:
// a first time for the norm, which also sees to it that no step is half taken because of a gradient
// that is not finite. On an accelerator the one transfer is between the two. Throws HalfTakenStep
// where something fails in the middle.
StepOutcome run_step(const StepParts& parts, const StepOptions& options, BatchFeed& batches,
                     double learning_rate, bool wants_stop);

}  // namespace pareprop::train
