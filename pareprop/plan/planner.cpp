#include "pareprop/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pareprop/plan/lane_time.h"

namespace pareprop::plan {

Planner::Planner(const MakeNetwork& make, const StepShape& shape) : dry_(make, shape) {
  // Only ratios count until a speed is known.
  constexpr MacsPerSecond kNominal{1e9};
  if (without_stacks()) return;
  variants_.push_back({false, dry_.profile(false), {}});
  if (variants_.front().work.stacks.size() > 1) {
    WorkProfile other = dry_.profile(true);
    const bool saves = other.stacks.back().above < variants_.front().work.stacks.back().above;
    if (saves) variants_.push_back({true, std::move(other), {}});
  }
  use(kNominal);
}

void Planner::use(const StepTimes& times) {
  if (without_stacks()) return;
  const Macs measured_rest = variants_.front().work.rest;
  for (Variant& variant : variants_) variant.profile = timed(variant.work, times, measured_rest);
  leanest_.reset();
}

void Planner::use(MacsPerSecond rate) {
  for (Variant& variant : variants_) variant.profile = timed(variant.work, rate);
  leanest_.reset();
}

namespace {

std::vector<std::vector<Policy>> policies_of(const StepPlan& step) {
  std::vector<std::vector<Policy>> policies;
  for (const StackPlan& stack : step.stacks) policies.push_back(stack.policies);
  return policies;
}

}  // namespace

const Profile& Planner::profile_of(const StepPlan& step) const {
  return step.recompute_between ? variants_.back().profile : variants_.front().profile;
}

Seconds Planner::seconds(const StepPlan& step) const {
  if (without_stacks()) return {};
  const Profile& profile = profile_of(step);
  return seconds(profile, evaluate(profile, step.overlaps(), policies_of(step)));
}

// The search adds up blocks; two lanes are better known by their schedule.
Seconds Planner::seconds(const Profile& profile, const Choice& choice) {
  if (!choice.overlap) return choice.seconds;
  Seconds sum = profile.rest;
  for (std::size_t s = 0; s < profile.stacks.size(); ++s) {
    const StackProfile& stack = profile.stacks[s];
    if (stack.depth() == 0) continue;
    if (!stack.in_lanes.known()) return choice.seconds;
    sum += seconds_in_lanes(stack, choice.policies.at(s));
  }
  return sum;
}

const Plan& Planner::leanest() {
  if (leanest_) return *leanest_;
  std::vector<StepPlan> candidates{all(Mode::checkpoint)};
  if (without_stacks()) candidates.push_back(all(Mode::stored));
  for (const auto& [recompute_between, work, profile] : variants_) {
    StepPlan lean = recomputing(false);
    lean.recompute_between = recompute_between;
    candidates.push_back(std::move(lean));
    const auto choice = choose(profile, smallest_budget(profile));
    if (choice) candidates.push_back(step_plan(*choice, recompute_between));
  }
  for (StepPlan& step : candidates) {
    Plan plan;
    plan.predicted = dry_.run(step);
    plan.seconds = seconds(step);
    plan.step = std::move(step);
    if (!leanest_ || plan.predicted.at_most < leanest_->predicted.at_most) {
      leanest_ = std::move(plan);
    }
  }
  return *leanest_;
}

Plan Planner::plan_step(std::int64_t budget) {
  Plan best = leanest();
  best.budget = budget;
  best.smallest_budget = best.predicted.at_most;
  best.fits = best.predicted.at_most <= budget;
  if (!best.fits) return best;
  if (without_stacks()) {
    const StepPlan stored = all(Mode::stored);
    const Prediction usage = dry_.run(stored);
    if (usage.at_most <= budget) {
      best.step = stored;
      best.predicted = usage;
    }
  }
  for (const Variant& variant : variants_) {
    improve(best, variant, false, budget);
    // Nothing is faster than storing everything.
    if (!best.step.stores_all() && overlap_pays(variant)) improve(best, variant, true, budget);
  }
  return best;
}

bool Planner::overlap_pays(const Variant& variant) const {
  const auto lean = policies_of(recomputing(false));
  return seconds(variant.profile, evaluate(variant.profile, true, lean)) <
         evaluate(variant.profile, false, lean).seconds;
}

// A dry step says what a choice really takes. With overlap or without is searched apart: they
// differ from the profile by other amounts, and are compared by seconds().
void Planner::improve(Plan& best, const Variant& variant, bool overlap, std::int64_t budget) {
  const auto consider = [&](const Choice& choice) -> std::optional<std::int64_t> {
    const StepPlan step = step_plan(choice, variant.recompute_between);
    const Prediction usage = dry_.run(step);
    const std::int64_t spare = budget - usage.at_most;
    const Seconds taken = seconds(variant.profile, choice);
    if (spare >= 0 &&
        std::pair(taken, usage.at_most) < std::pair(best.seconds, best.predicted.at_most)) {
      best.step = step;
      best.predicted = usage;
      best.seconds = taken;
    }
    if (spare >= 0 && best.step.stores_all()) return std::nullopt;
    return spare;
  };
  // Where the profile thinks too much of what it takes, no budget of the search would find it.
  if (overlap) consider(evaluate(variant.profile, true, policies_of(recomputing(true))));
  close_in(variant.profile, budget, overlap, consider);
}

Plan Planner::plan(std::int64_t budget) {
  Plan plan = plan_step(budget);
  plan.largest_batch = largest_batch(budget);
  if (!plan.fits) {
    plan.micro_batch = largest_part(leanest().step, budget);
    plan.accumulate = plan.micro_batch == 0 ? 0 : dry_.shape().batch / plan.micro_batch;
  } else {
    plan.stored_micro_batch = largest_stored_part(budget);
  }
  return plan;
}

std::int64_t Planner::largest_batch(std::int64_t budget) {
  return largest_batch(leanest().step, budget);
}

std::int64_t Planner::largest_batch(const StepPlan& step, std::int64_t budget) {
  return largest_batch(step, budget, dry_.shape().accumulates);
}

std::int64_t Planner::largest_stored_part(std::int64_t budget) {
  const StepPlan stored = all(Mode::stored);
  return predict(stored).at_most <= budget ? 0 : largest_part(stored, budget);
}

std::int64_t Planner::largest_batch(const StepPlan& step, std::int64_t budget, bool accumulates) {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  struct Tried {
    std::int64_t batch, peak;
  };
  auto dry = [&](std::int64_t batch) {
    return Tried{batch, dry_.run(step, batch, accumulates).at_most};
  };
  Tried enough = dry(1);
  if (enough.peak > budget) return 0;
  Tried too_many = dry(2);
  while (too_many.peak <= budget) {
    enough = too_many;
    if (enough.batch == kMost) return kMost;
    too_many = dry(2 * enough.batch);
  }
  // Bytes grow about evenly from here on: the answer is looked for where that leads.
  while (too_many.batch - enough.batch > 1) {
    const double share = static_cast<double>(budget - enough.peak) /
                         static_cast<double>(too_many.peak - enough.peak);
    const std::int64_t ahead =
        std::llround(share * static_cast<double>(too_many.batch - enough.batch));
    const Tried next = dry(std::clamp(enough.batch + ahead, enough.batch + 1, too_many.batch - 1));
    (next.peak <= budget ? enough : too_many) = next;
  }
  return enough.batch;
}

std::int64_t Planner::largest_part(const StepPlan& step, std::int64_t budget) {
  // Between micro-batches all gradients are kept.
  if (dry_.shape().updates_inside) return 0;
  const std::int64_t most = largest_batch(step, budget, /*accumulates=*/true);
  const std::int64_t batch = dry_.shape().batch;
  for (std::int64_t part = std::min(most, batch - 1); part >= 1; --part) {
    if (batch % part == 0) return part;
  }
  return 0;
}

}  // namespace pareprop::plan
