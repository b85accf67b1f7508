#include "pareprop/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pareprop/models/registry.h"

namespace pareprop::plan {
namespace {

std::function<std::shared_ptr<models::Model>()> maker(const std::string& name,
                                                      const models::Overrides& overrides = {}) {
  return [=] { return models::make_model(name, overrides, {.device = at::kMeta}); };
}

std::int64_t peak(Planner& planner, Mode mode) {
  return planner.predict(planner.all(mode)).at_most;
}

TEST(Planner, PlansAreWithinTheirBudgetAndFasterWithMore) {
  for (const char* name : {"vit_cifar", "swin_cifar", "mvit_cifar"}) {
    Planner planner(maker(name), {.batch = 4});
    const std::int64_t stored = peak(planner, Mode::stored);
    const std::int64_t least = planner.plan_step(0).smallest_budget;
    ASSERT_LT(least, stored);
    Seconds last{std::numeric_limits<double>::infinity()};
    int kinds = 0;
    for (int tenths = 0; tenths <= 10; ++tenths) {
      const std::int64_t budget = least + (stored - least) * tenths / 10;
      const Plan plan = planner.plan_step(budget);
      EXPECT_TRUE(plan.fits);
      EXPECT_LE(plan.predicted.at_most, budget) << name << " " << tenths;
      EXPECT_LE(plan.seconds, last) << name << " " << tenths;
      if (plan.seconds < last) ++kinds;
      last = plan.seconds;
      EXPECT_EQ(planner.predict(plan.step).total_peak, plan.predicted.total_peak);
    }
    EXPECT_GE(kinds, 3) << name;
    EXPECT_EQ(planner.plan_step(stored).step, planner.all(Mode::stored)) << name;
    EXPECT_EQ(last, planner.seconds(planner.all(Mode::stored))) << name;
  }
}

TEST(Planner, SaysWhatWouldFitWhenNothingDoes) {
  Planner planner(maker("vit_cifar"), {.batch = 12});
  const std::int64_t least = planner.plan_step(0).smallest_budget;
  EXPECT_TRUE(planner.plan_step(least).fits);
  const Plan plan = planner.plan(least - 1);
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.smallest_budget, least);
  EXPECT_EQ(plan.largest_batch, 11);
  EXPECT_EQ(plan.micro_batch * plan.accumulate, 12);
  EXPECT_GT(plan.micro_batch, 0);
  const Plan enough = planner.plan(least);
  EXPECT_EQ(enough.largest_batch, 12);
  EXPECT_EQ(enough.micro_batch, 0);
  const Plan none = planner.plan(1000);
  EXPECT_EQ(none.largest_batch, 0);
  EXPECT_EQ(none.micro_batch, 0);
}

TEST(Planner, SaysInWhichPartsNothingNeedBeRecomputed) {
  for (const bool plain : {false, true}) {
    const auto make = maker("vit_cifar", {.plain = plain});
    Planner planner(make, {.batch = 12});
    const std::int64_t least = planner.plan_step(0).smallest_budget;
    const std::int64_t part = planner.plan(least).stored_micro_batch;
    ASSERT_GT(part, 0) << plain;
    ASSERT_LT(part, 12) << plain;
    EXPECT_EQ(12 % part, 0) << plain;
    Planner as_part(make, {.batch = part, .accumulates = true});
    EXPECT_LE(peak(as_part, Mode::stored), least) << plain;
    EXPECT_EQ(planner.plan(peak(planner, Mode::stored)).stored_micro_batch, 0) << plain;
    EXPECT_EQ(planner.plan(least - 1).stored_micro_batch, 0) << plain;
  }
}

TEST(Planner, RecomputesStageBoundariesOnlyWhereBytesAreShort) {
  Planner planner(maker("mvit_cifar"), {.batch = 8});
  const Plan lean = planner.plan_step(planner.plan_step(0).smallest_budget);
  EXPECT_TRUE(lean.step.recompute_between);
  EXPECT_LT(lean.predicted.total_peak, peak(planner, Mode::reprop));
  EXPECT_FALSE(planner.plan_step(peak(planner, Mode::stored)).step.recompute_between);
}

TEST(Planner, MeasuredTimesDecideWhetherLanesOverlap) {
  Planner slow(maker("vit_cifar", {.depths = {8}}), {.batch = 4}), fast = slow;
  slow.use(StepTimes{.stacks = {{1.0, 2.0, 3.5}}, .rest = 4.0});
  fast.use(StepTimes{.stacks = {{1.0, 2.0, 2.0625}}, .rest = 4.0});
  const std::int64_t budget = peak(slow, Mode::pareprop);
  EXPECT_FALSE(slow.plan_step(budget).step.overlaps());
  EXPECT_EQ(slow.seconds(slow.all(Mode::reprop)).count, 4.0 + 8 * 3.0);
  EXPECT_EQ(fast.seconds(fast.all(Mode::pareprop)).count, 4.0 + 8 * 2.0625);
  EXPECT_EQ(fast.seconds(fast.all(Mode::stored)).count, 4.0 + 8 * 2.0);
  EXPECT_TRUE(fast.plan_step(budget).step.overlaps());
}

// Lanes that are not filled by recovery: worth it where much is recovered, and only there.
// Times are taken anew from the work, not on top of earlier ones.
TEST(Planner, TheLastTimesGivenCount) {
  Planner planner(maker("vit_cifar"), {.batch = 2});
  planner.use(MacsPerSecond{1e9});
  const Seconds once = planner.seconds(planner.all(Mode::reprop));
  planner.use(StepTimes{.stacks = {{1.0, 2.0, 3.5}}, .rest = 4.0});
  planner.use(MacsPerSecond{1e9});
  EXPECT_EQ(planner.seconds(planner.all(Mode::reprop)), once);
  planner.use(MacsPerSecond{2e9});
  EXPECT_DOUBLE_EQ(planner.seconds(planner.all(Mode::reprop)).count, once.count / 2);
}

TEST(Planner, BlocksThatAreStoredSpeakAgainstLanes) {
  Planner planner(maker("vit_cifar", {.depths = {8}}), {.batch = 4});
  planner.use(StepTimes{.stacks = {{1.0, 2.0, 2.125, {1.0, 2.0625, 0.25}}}, .rest = 4.0});
  const std::int64_t lean = peak(planner, Mode::pareprop), stored = peak(planner, Mode::stored);
  EXPECT_NEAR(planner.seconds(planner.all(Mode::pareprop)).count, 4.0 + 8 * 2.125, 1e-9);
  EXPECT_TRUE(planner.plan_step(lean).step.overlaps());
  const Plan rich = planner.plan_step(stored - (stored - lean) / 16);
  EXPECT_FALSE(rich.step.overlaps());
  EXPECT_FALSE(rich.step.stores_all());
  EXPECT_EQ(planner.plan_step(stored).step, planner.all(Mode::stored));
}

TEST(Planner, KeepsProductsWhereAFewBytesAreMissing) {
  Planner planner(maker("vit_cifar", {.depths = {8}}), {.batch = 4});
  const std::int64_t stored = peak(planner, Mode::stored), lean = peak(planner, Mode::reprop);
  const auto blocks = planner.plan_step(stored - (stored - lean) / 8).step.stacks.at(0).policies;
  const auto count = [&](Policy policy) {
    return std::count(blocks.begin(), blocks.end(), policy);
  };
  EXPECT_GT(count(Policy::products), 0);
  EXPECT_EQ(count(Policy::products) + count(Policy::store), 8);
  EXPECT_EQ(planner.plan_step(stored).step, planner.all(Mode::stored));
}

TEST(Planner, BlocksOfPlainNetworksAreStoredLeanOrCheckpointed) {
  Planner planner(maker("vit_cifar", {.depths = {8}, .plain = true}), {.batch = 4});
  const std::int64_t stored = peak(planner, Mode::stored), lean = peak(planner, Mode::checkpoint);
  EXPECT_EQ(planner.plan_step(stored).step, planner.all(Mode::stored));
  EXPECT_FALSE(planner.plan_step(1000).fits);
  const auto count = [&](std::int64_t budget, Policy policy) {
    const Plan plan = planner.plan_step(budget);
    EXPECT_TRUE(plan.fits && plan.predicted.at_most <= budget) << budget;
    const auto blocks = plan.step.stacks.at(0).policies;
    return std::count(blocks.begin(), blocks.end(), policy);
  };
  EXPECT_GT(count(stored - (stored - lean) / 8, Policy::products), 0);
  const std::int64_t little = lean + (stored - lean) / 8;
  EXPECT_GT(count(little, Policy::checkpoint), 0);
  EXPECT_LT(count(little, Policy::checkpoint), 8);
  EXPECT_EQ(count(lean, Policy::reverse), 0);
}

TEST(Planner, PlainNetworksAreFasterWithMoreBytes) {
  for (const char* const model : {"vit_cifar", "swin_cifar", "mvit_cifar"}) {
    Planner planner(maker(model, {.plain = true}), {.batch = 4});
    planner.use(MacsPerSecond{1e9});
    const std::int64_t least = planner.plan_step(0).smallest_budget;
    const std::int64_t most = peak(planner, Mode::stored);
    EXPECT_LT(least, most) << model;
    double last = 1e30;
    for (int i = 0; i <= 8; ++i) {
      const Plan plan = planner.plan_step(least + (most - least) * i / 8);
      ASSERT_TRUE(plan.fits) << model << " " << i;
      EXPECT_LE(plan.seconds.count, last) << model << " " << i;
      last = plan.seconds.count;
    }
    EXPECT_DOUBLE_EQ(last, planner.seconds(planner.all(Mode::stored)).count) << model;
    EXPECT_LT(last, planner.seconds(planner.all(Mode::checkpoint)).count) << model;
  }
}

}  // namespace
}  // namespace pareprop::plan
