#pragma once

#include <memory>
#include <optional>

#include "pareprop/distributed/shares.h"
#include "pareprop/models/model.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/first_weights.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// A network and what trains it: what a run makes once, and what its checkpoints hold.
struct Learner {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<distributed::Shares> shares;
  std::unique_ptr<optim::Optimizer> optimizer;  // of shares->own()
  std::optional<Ema> average;                   // none: weights are not averaged

  Trained trained() { return {*model, *shares, *optimizer, average ? &*average : nullptr}; }
};

// With its first weights (`weights`, or random ones) and what it computes with; how it is trained
// is not planned yet. What was adapted is told to `say` (may be null). Throws what make_model() and
// load_first_weights() throw. The group outlives it.
Learner make_learner(const TrainConfig& config, const TrainChoices& choices,
                     const TrainingData& data, c10::Device device, distributed::ProcessGroup& group,
                     const FirstWeights* weights = nullptr,
                     const std::function<void(const std::string&)>& say = nullptr);

// The state that the optimizer has for weights. For plans, before it is made.
plan::MakeOptimizer dry_optimizer(const optim::OptimizerOptions& options);
// That and an average of the weights, which every process has whole.
plan::MakeOptimizer with_average(plan::MakeOptimizer make);

}  // namespace pareprop::train
