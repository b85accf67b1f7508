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
  StepPlan step;         // the fastest that fits; when none does, the leanest
  Prediction predicted;  // of it
  // Of a step. Before times are known: of a machine of which only the ratios are right.
  Seconds seconds = {};
  std::int64_t smallest_budget = 0;  // for this batch
  std::int64_t largest_batch = 0;    // within this budget; 0: not even one sample
  // When it does not fit: the largest part of the batch that does, so many times; 0: none.
  std::int64_t micro_batch = 0;
  std::int64_t accumulate = 0;
  // When it fits only by recomputing: the largest part of the batch that would fit with everything
  // stored, so that the batch in such parts computes less; 0: none.
  std::int64_t stored_micro_batch = 0;
};

// Plans training steps of one network: the fastest within a number of bytes. What mode `auto` is.
class Planner {
 public:
  // `make` as of DryStep; called once.
  Planner(const MakeNetwork& make, const StepShape& shape);

  const StepShape& shape() const { return dry_.shape(); }
  bool plain() const { return dry_.network().stacks().empty(); }
  void use(const StepTimes& times);
  void use(MacsPerSecond rate);

  Plan plan(std::int64_t budget);
  // The same without the answers for other batches and budgets.
  Plan plan_step(std::int64_t budget);

  // What a step that is given takes.
  Prediction predict(const StepPlan& step) { return dry_.run(step); }
  // Seconds of it by the profile, with lanes by their schedule. 0 for a plain network.
  Seconds seconds(const StepPlan& step) const;
  // One that keeps all of the network to a mode.
  StepPlan all(Mode mode) const { return dry_.network().plan_of(mode); }

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
  std::vector<Variant> variants_;  // none of a plain network
  std::optional<Plan> leanest_;
};

}  // namespace pareprop::plan
