#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/plan/planner.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// Plans how a run is trained within its bytes, and sees that it keeps to them.
class BudgetKeeper {
 public:
  using Say = std::function<void(const std::string&)>;

  // `live` are the bytes of tensors of this process that a step needs besides the network and its
  // optimizer. `data` outlives it. Throws std::invalid_argument for a budget that is none.
  BudgetKeeper(const TrainConfig& config, const TrainingData& data, int processes,
               std::int64_t live, Say say);

  // Decides how to train: in mode `auto` the fastest way that fits, timing a few steps of `model`
  // where that decides between several; in others, theirs. Throws std::invalid_argument when what
  // the configuration names does not fit, saying what would.
  void plan(models::Model& model, const StackOptions& options);

  // Without timing, for who only asks. `show` sees the planner too.
  void plan_by_shapes(const std::function<void(plan::Planner&, const plan::Plan&)>& show);

  // Gives the network's stacks their policies.
  void apply(models::Model& model, const StackOptions& options) const;

  // After each step: when it took more than was predicted and the limit is near, the next ones keep
  // less (true: apply() again). Throws std::runtime_error when nothing leaner is left, or when the
  // machine itself is nearly out of memory.
  bool tighten(std::int64_t step);

  const plan::Plan& plan() const { return plan_; }
  bool named() const { return named_; }              // a budget was
  std::int64_t highest() const { return highest_; }  // peak of all steps

 private:
  // Only while it is needed: what it plans with counts as memory.
  plan::Planner make_planner() const;
  plan::Plan fixed_plan(plan::Planner& planner, Mode mode) const;
  plan::Plan decide(models::Model& model, const StackOptions& options);
  void check_fits() const;
  void check_machine(std::int64_t step) const;

  const TrainConfig config_;
  const Say say_;
  const bool named_;
  const std::int64_t budget_;
  const std::function<std::shared_ptr<models::Model>()> make_;
  const plan::StepShape shape_;
  std::optional<plan::StepTimes> times_;
  plan::Plan plan_;
  std::int64_t excess_ = 0;  // of what was measured over what was predicted
  std::int64_t highest_ = 0;
};

}  // namespace pareprop::train
