#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "pareprop/plan/choose.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/plan/step_times.h"

namespace pareprop::plan {

struct Plan {
  bool fits = false;
  std::int64_t budget = 0;
  StepPlan step;         // the fastest that fits; if none fits, the leanest
  Prediction predicted;  // the memory of `step`
  // Time of a step. Without measured times only ratios of such times are meaningful.
  Seconds seconds = {};
  std::int64_t smallest_budget = 0;  // the smallest budget for this batch
  std::int64_t largest_batch = 0;    // the largest batch for this budget; 0: not one sample
  // If the batch does not fit: the largest micro-batch that does, and how many of them make the
  // batch; 0: none fits. Of a JointPlan: the parts that it has; 0: it has the whole batch.
  std::int64_t micro_batch = 0;
  std::int64_t accumulate = 0;
  // If the batch fits only with recomputation: the largest micro-batch that fits with everything
  // stored; 0: none.
  std::int64_t stored_micro_batch = 0;
};

// Finds the fastest plan for training steps of one network in a number of bytes: mode `auto`.
class Planner {
 public:
  // `make`: see DryStep. It is called once.
  Planner(const MakeNetwork& make, const StepShape& shape);

  const StepShape& shape() const { return dry_.shape(); }
  const Network& network() const { return dry_.network(); }
  // Whether the network has no stacks: then it is stored, or what it recomputes between layers is.
  bool without_stacks() const { return dry_.network().stacks().empty(); }
  void use(const StepTimes& times);
  void use(MacsPerSecond rate);

  Plan plan(std::int64_t budget);
  // The same without largest_batch and the micro-batches.
  Plan plan_step(std::int64_t budget);
  // Those figures alone: Plan::largest_batch, or that of one plan; and what stored_micro_batch is
  // where the batch fits.
  std::int64_t largest_batch(std::int64_t budget);
  std::int64_t largest_batch(const StepPlan& step, std::int64_t budget);
  std::int64_t largest_stored_part(std::int64_t budget);

  // The memory of a step with this plan.
  Prediction predict(const StepPlan& step) { return dry_.run(step); }
  // The same with another batch, with or without gradient accumulation.
  Prediction predict(const StepPlan& step, std::int64_t batch, bool accumulates) {
    return dry_.run(step, batch, accumulates);
  }
  // The time of such a step: by the profile, and with two lanes by the schedule. 0 without stacks.
  Seconds seconds(const StepPlan& step) const;
  // The plan that a mode stands for in this network.
  StepPlan all(Mode mode) const { return dry_.network().plan_of(mode); }
  // The plan that stores only what branches are run again from.
  StepPlan recomputing(bool overlap) const { return dry_.network().recomputing_plan(overlap); }

 private:
  const Plan& leanest();
  std::int64_t largest_batch(const StepPlan& step, std::int64_t budget, bool accumulates);
  // The largest of equal parts of the batch that fits as a micro-step; 0: none.
  std::int64_t largest_part(const StepPlan& step, std::int64_t budget);

  // Of steps that store what lies between stacks; or recompute it, where that saves anything.
  struct Variant {
    bool recompute_between;
    WorkProfile work;
    Profile profile;
  };
  const Profile& profile_of(const StepPlan& step) const;
  static Seconds seconds(const Profile& profile, const Choice& choice);
  bool overlap_pays(const Variant& variant) const;
  void improve(Plan& best, const Variant& variant, bool overlap, std::int64_t budget);

  DryStep dry_;
  std::vector<Variant> variants_;  // none without stacks
  std::optional<Plan> leanest_;
};

}  // namespace pareprop::plan
