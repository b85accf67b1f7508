#include "pareprop/train/run_schedule.h"

#include <algorithm>
#include <cmath>

namespace pareprop::train {
namespace {

std::int64_t whole_steps(double steps) { return std::max<std::int64_t>(1, std::llround(steps)); }

}  // namespace

RunSchedule::RunSchedule(const TrainConfig& config, Decay decay, std::int64_t batches)
    : steps_of_epoch_(static_cast<double>(batches) / static_cast<double>(config.accumulate)),
      all_steps_(config.steps > 0 ? config.steps : whole_steps(config.epochs * steps_of_epoch_)),
      rate_{.peak = config.learning_rate,
            .last = config.last_learning_rate,
            .warmup = std::llround(config.warmup * static_cast<double>(all_steps_)),
            .total = all_steps_,
            .decay = decay},
      log_every_(config.log_every),
      evaluate_every_(config.eval_every > 0 ? config.eval_every : whole_steps(steps_of_epoch_)),
      patience_(config.early_stop) {
  rate_.check();
}

double RunSchedule::epochs(std::int64_t step) const {
  return static_cast<double>(step) / steps_of_epoch_;
}

bool RunSchedule::is_logged(std::int64_t step, std::int64_t first) const {
  return step % log_every_ == 0 || step == first || is_last(step);
}

bool RunSchedule::evaluates(std::int64_t step) const {
  return step > 0 && (step % evaluate_every_ == 0 || is_last(step));
}

bool RunSchedule::stops_early(const std::vector<LossPoint>& evaluations) const {
  return patience_ > 0 && since_best(evaluations) >= patience_;
}

bool RunSchedule::is_over(std::int64_t step, const std::vector<LossPoint>& evaluations) const {
  return is_evaluated(step, evaluations) && (is_last(step) || stops_early(evaluations));
}

bool is_evaluated(std::int64_t step, const std::vector<LossPoint>& evaluations) {
  return !evaluations.empty() && evaluations.back().step >= step;
}

}  // namespace pareprop::train
