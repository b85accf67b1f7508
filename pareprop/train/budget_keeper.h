#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/memory/free_memory.h"
#include "pareprop/plan/joint_search.h"
#include "pareprop/train/allowed_ways.h"
#include "pareprop/train/train_config.h"
#include "pareprop/train/training_data.h"

namespace pareprop::train {

// How many train together.
struct Processes {
  int all = 1;
  int on_device = 1;              // whose memory they divide among them
  int rank = 0;                   // of this one, in all
  c10::Device device = at::kCPU;  // of this one
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

  // Which of the ways that the configuration allows (`allow`) is the fastest, by shapes alone, or
  // the leanest where nothing fits: its number in allowed_ways(), from 1 on; 0: what it asks for.
  std::int64_t settle();

  // Decides how to train: in mode `auto` the fastest way that fits, timing a few steps of `model`
  // where that decides between several; in others, theirs. Throws as expect_to_fit() does. `live`
  // are the bytes of tensors of this process that a step needs besides the network and its
  // optimizer. `parts`: those that the run had before; others are taken only where they do not fit.
  void plan(models::Model& model, std::int64_t live,
            std::optional<std::int64_t> parts = std::nullopt);

  // Without timing, for who only asks. `show` sees the search too.
  void plan_by_shapes(const std::function<void(plan::JointSearch&, const plan::JointPlan&)>& show);

  // After each step: when it took more than was predicted and the limit is near, the next ones keep
  // less (true: plan() is another). Throws std::runtime_error when nothing leaner is left, or when
  // the machine itself is nearly out of memory; never with --force.
  bool tighten(std::int64_t step);

  // Of each part of a batch.
  const plan::Plan& plan() const { return plan_.micro; }
  std::int64_t parts() const { return plan_.parts; }
  std::int64_t samples() const { return config_.batch / plan_.parts; }  // of a part
  bool named() const { return choices_.budget.has_value(); }            // a budget was
  std::int64_t highest() const { return highest_; }                     // peak of all steps

 private:
  // Only while it is needed: what it plans with counts as memory.
  plan::JointSearch make_search(std::vector<plan::Departure> allowed = {}) const;
  // Of a run with this configuration; `network` is any that it trains, only its shapes count.
  plan::StepShape shape_of(const TrainConfig& config, const Network& network) const;
  ShapeOf shape_of_any() const;
  plan::JointSearch search_of_allowed() const;
  plan::JointPlan decide(models::Model& model, std::optional<std::int64_t> parts);
  bool fits_at_its_leanest() const;
  std::string why_not(const plan::JointPlan& plan) const;
  void check_fits();
  void check_machine(std::int64_t step) const;

  bool is_auto() const { return choices_.mode == Mode::automatic; }

  const TrainConfig config_;
  const TrainChoices choices_;
  const Say say_;
  const Processes processes_;
  const c10::Device device_;
  const memory::MemoryLimit limit_;
  const std::int64_t budget_;
  const std::function<std::shared_ptr<models::Model>()> make_;
  std::int64_t live_;              // tensors of this process besides the network's
  std::int64_t batch_bytes_ = 0;   // of a sample
  std::int64_t scores_bytes_ = 0;  // of a sample of text: what it may have more of than others
  plan::StepShape shape_;
  plan::SizeTimes times_;
  plan::JointPlan plan_;
  bool forced_ = false;      // it was said that the plan does not fit
  std::int64_t excess_ = 0;  // of what was measured over what was predicted
  std::int64_t highest_ = 0;
};

}  // namespace pareprop::train
