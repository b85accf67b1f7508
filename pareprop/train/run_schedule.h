#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/train/learning_rate.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/train_state.h"

namespace pareprop::train {

// What a run does after which step. Steps are counted from 1; step 0 is before the first.
class RunSchedule {
 public:
  // `batches` is how many one process has in an epoch. Throws std::invalid_argument for learning
  // rates that contradict each other.
  RunSchedule(const TrainConfig& config, Decay decay, std::int64_t batches);

  std::int64_t all_steps() const { return all_steps_; }
  bool is_last(std::int64_t step) const { return step >= all_steps_; }
  // Passes over the data after this step.
  double epochs(std::int64_t step) const;
  // Of the step that follows this one.
  double learning_rate(std::int64_t step) const { return rate_.at(step); }

  // Whether the step is written down; `first` is the first that this process trains.
  bool is_logged(std::int64_t step, std::int64_t first) const;
  bool evaluates(std::int64_t step) const;
  // Whether evaluations have not become better for as long as the configuration allows.
  bool stops_early(const std::vector<LossPoint>& evaluations) const;
  // Whether nothing is left to do after these steps and evaluations.
  bool is_over(std::int64_t step, const std::vector<LossPoint>& evaluations) const;

 private:
  double steps_of_epoch_;
  std::int64_t all_steps_;
  LearningRate rate_;
  std::int64_t log_every_, evaluate_every_, patience_;
};

// Whether the last evaluation is of this step.
bool is_evaluated(std::int64_t step, const std::vector<LossPoint>& evaluations);

}  // namespace pareprop::train
