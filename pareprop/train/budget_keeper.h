#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/memory/free_memory.h"
#include "pareprop/plan/planner.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// How many train together.
struct Processes {
  int all = 1;
  int here = 1;                   // on this machine, whose memory they divide among them
  c10::Device device = at::kCPU;  // of this one; an accelerator is not divided
};

// Plans how a run is trained within its bytes, and sees that it keeps to them.
class BudgetKeeper {
 public:
  using Say = std::function<void(const std::string&)>;

  // Looks at what is free: to be made before the network is. `data` outlives it. Throws
  // std::invalid_argument for a budget that is none.
  BudgetKeeper(const TrainConfig& config, const TrainingData& data, const Processes& processes,
               Say say);

  // Throws std::invalid_argument when no step could fit in the budget, or in what is free where
  // none was named, saying what takes how much and what would help; with --force it only says so.
  // By shapes alone: neither the network nor its memory is needed.
  void expect_to_fit();

  // Decides how to train: in mode `auto` the fastest way that fits, timing a few steps of `model`
  // where that decides between several; in others, theirs. Throws as expect_to_fit() does. `live`
  // are the bytes of tensors of this process that a step needs besides the network and its
  // optimizer.
  void plan(models::Model& model, std::int64_t live);

  // Without timing, for who only asks. `show` sees the planner too.
  void plan_by_shapes(const std::function<void(plan::Planner&, const plan::Plan&)>& show);

  // After each step: when it took more than was predicted and the limit is near, the next ones keep
  // less (true: plan() is another). Throws std::runtime_error when nothing leaner is left, or when
  // the machine itself is nearly out of memory; never with --force.
  bool tighten(std::int64_t step);

  const plan::Plan& plan() const { return plan_; }
  bool named() const { return choices_.budget.has_value(); }  // a budget was
  std::int64_t highest() const { return highest_; }           // peak of all steps

 private:
  // Only while it is needed: what it plans with counts as memory.
  plan::Planner make_planner() const;
  plan::Plan fixed_plan(plan::Planner& planner, Mode mode) const;
  plan::Plan decide(models::Model& model);
  bool fits_at_its_leanest(const plan::StepShape& shape) const;
  std::string what_would_help() const;
  // What is said of a plan that does not fit.
  void add_advice(plan::Plan& plan, plan::Planner& planner) const;
  std::string why_not(const plan::Plan& plan) const;
  void check_fits();
  void check_machine(std::int64_t step) const;

  bool is_auto() const { return choices_.mode == Mode::automatic; }

  const TrainConfig config_;
  const TrainChoices choices_;
  const Say say_;
  const c10::Device device_;
  const memory::MemoryLimit limit_;
  const std::int64_t budget_;
  const std::function<std::shared_ptr<models::Model>()> make_;
  plan::StepShape shape_;
  std::int64_t travelling_bytes_ = 0;  // of gradients on their way to other processes
  std::optional<plan::StepTimes> times_;
  plan::Plan plan_;
  bool forced_ = false;      // it was said that the plan does not fit
  std::int64_t excess_ = 0;  // of what was measured over what was predicted
  std::int64_t highest_ = 0;
};

}  // namespace pareprop::train
