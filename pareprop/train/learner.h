#pragma once

#include <memory>
#include <optional>

#include "pareprop/models/model.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/train/checkpoint_store.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// A network and what trains it: what a run makes once, and what its checkpoints hold.
struct Learner {
  std::shared_ptr<models::Model> model;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::optional<Ema> average;  // none: weights are not averaged

  Trained trained() { return {*model, *optimizer, average ? &*average : nullptr}; }
};

// With its first weights and what it computes with; how it is trained is not planned yet. Throws
// what make_model() and set_first_weights() throw.
Learner make_learner(const TrainConfig& config, const TrainChoices& choices,
                     const TrainingData& data, c10::Device device);

// The state that its optimizer and its average will hold. For plans, before it is made.
plan::MakeState optimizer_state(const TrainConfig& config, const TrainChoices& choices);

}  // namespace pareprop::train
