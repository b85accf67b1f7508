#pragma once

#include "pareprop/distributed/gradient_buckets.h"
#include "pareprop/distributed/process_group.h"
#include "pareprop/train/budget_keeper.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/inside_updates.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/run_schedule.h"
#include "pareprop/train/run_trace.h"
#include "pareprop/train/trainer.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// A run whose first step may begin: all that it trains with is made, loaded and planned, and
// outlives the loop.
struct ReadyRun {
  const TrainConfig& config;
  const TrainEvents& events;
  distributed::ProcessGroup& group;
  const TrainingData& data;
  const BatchSets& batches;
  const RunSchedule& schedule;
  Trained trained;
  BudgetKeeper& keeper;
  distributed::GradientBuckets& buckets;
  InsideUpdates* inside;  // null: the optimizer steps after the backward pass
  RunTrace& trace;
  const RunFolder* folder;    // owned; null: another process writes
  const TrainState* resumed;  // where it goes on; null: it begins at step 0
};

// Trains, evaluates and saves to the end of the schedule, or until it is asked to stop. Throws as
// train() does.
TrainResult run_training_loop(const ReadyRun& run);

}  // namespace pareprop::train
