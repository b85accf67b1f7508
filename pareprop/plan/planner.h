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
  StepPlan step;                     // the fastest that fits; when none does, the leanest
  Prediction predicted;              // of it
  double seconds = 0.0;              // of a step; multiply-accumulates before times are known
  std::int64_t smallest_budget = 0;  // for this batch
  std::int64_t largest_batch = 0;    // within this budget; 0: not even one sample
  // When it does not fit: the largest part of the batch that does, so many times; 0: none.
  std::int64_t micro_batch = 0;
  std::int64_t accumulate = 0;
  // When it fits only by recomputing: the largest part of the batch that would fit with everything
  // stored, so that the batch in such parts computes less; 0: none.
  std::int64_t stored_micro_batch = 0;
};

// Plans training steps of one network: the fastest within a number of bytes.
class Planner {
 public:
  // As DryStep.
  Planner(const std::function<std::shared_ptr<models::Model>()>& make, const StepShape& shape);

  const StepShape& shape() const { return dry_.shape(); }
  bool plain() const { return dry_.model().stacks().empty(); }
  void use(const StepTimes& times);
  void use(double macs_per_second);

  Plan plan(std::int64_t budget);
  // The same without the answers for other batches and budgets.
  Plan plan_step(std::int64_t budget);

  // What a step that is given takes.
  Prediction predict(const StepPlan& step) { return dry_.run(step); }
  // Seconds of it by the profile, with lanes by their schedule. 0 for a plain network.
  double seconds(const StepPlan& step) const;
  // One that keeps all of the network to a mode.
  StepPlan all(Mode mode) const;

 private:
  const Plan& leanest();
  std::int64_t largest_batch(const StepPlan& step, std::int64_t budget, bool accumulates);
  // The largest of equal parts of the batch that fits as a micro-step; 0: none.
  std::int64_t largest_part(const StepPlan& step, std::int64_t budget);

  // Of steps that store what lies between stacks; or recompute it, where that saves anything.
  struct Variant {
    bool recompute_between;
    Profile profile;
  };
  const Profile& profile_of(const StepPlan& step) const;
  static double seconds(const Profile& profile, const Choice& choice);
  bool overlap_pays(const Variant& variant) const;
  void improve(Plan& best, const Variant& variant, bool overlap, std::int64_t budget);

  DryStep dry_;
  std::vector<Variant> variants_;  // none of a plain network
  std::optional<Plan> leanest_;
};

}  // namespace pareprop::plan
