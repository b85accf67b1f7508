#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "pareprop/data/batches.h"
#include "pareprop/distributed/process_group.h"
#include "pareprop/models/model.h"

namespace pareprop::train {

struct Evaluation {
  double loss = 0.0;      // mean over all rows
  double accuracy = 0.0;  // share of rows whose best guess is right
  std::int64_t rows = 0;  // samples, or masked tokens
  bool whole = true;      // false: it was given up before its last batch
};

struct EvaluateOptions {
  int workers = 1;           // threads that prepare data
  std::int64_t samples = 0;  // at a time; 0: a whole batch
  // Called after every batch; true in any of the processes: all give up, after the same batch.
  // Null, in all of them: never.
  std::function<bool(std::int64_t done, std::int64_t all)> on_batch = nullptr;
};

// Over all batches of `data`, those of all processes together, the same in each. The network is in
// training mode again afterwards if it was before.
Evaluation evaluate(models::Model& model, std::shared_ptr<const data::Batches> data,
                    distributed::ProcessGroup& group, const EvaluateOptions& options = {});

// How many rows have their highest score where the target is, of classes or of probabilities: one
// number, on the device of the scores.
at::Tensor right_rows(const at::Tensor& scores, const at::Tensor& targets);

}  // namespace pareprop::train
