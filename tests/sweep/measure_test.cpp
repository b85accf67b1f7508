#include "pareprop/sweep/measure.h"

#include <gtest/gtest.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"

namespace pareprop {
namespace {

TEST(Measure, ModesTakeTurns) {
  memory::install_caching_allocator();
  const auto model = models::make_model("vit_digits", {.depths = {2}});
  std::vector<std::pair<Mode, int>> turns;
  const auto rows = measure(*model, {.modes = {Mode::reprop, Mode::stored},
                                     .batch = 2,
                                     .rounds = 2,
                                     .steps = 3,
                                     .on_turn = [&](const Contestant& who, int round) {
                                       turns.emplace_back(who.mode, round);
                                     }});
  std::vector<std::pair<Mode, int>> expected;
  for (int round = 0; round <= 3; ++round) {
    expected.emplace_back(Mode::reprop, round);
    expected.emplace_back(Mode::stored, round);
  }
  EXPECT_EQ(turns, expected);
  ASSERT_EQ(rows.size(), 2U);
  for (const MeasureRow& row : rows) {
    EXPECT_EQ(row.step_ms.size(), 6U);
    for (std::size_t i = 0; i < row.step_ms.size(); ++i) {
      EXPECT_DOUBLE_EQ(row.step_ms[i], row.forward_ms[i] + row.backward_ms[i]);
    }
  }
}

TEST(Measure, APlanRunsWithItsPolicies) {
  memory::install_caching_allocator();
  const auto model = models::make_model("vit_digits", {.depths = {6}});
  const auto planned = [](int stored, std::int64_t budget) {
    StepPlan step = plan_of(Mode::reprop, std::vector<int>{6});
    std::vector<Policy>& policies = step.stacks[0].policies;
    std::fill_n(policies.rbegin(), stored, Policy::store);
    if (stored > 0) policies.back() = Policy::products;
    return BudgetedPlan{budget, step};
  };
  const auto rows = measure(*model, {.modes = {Mode::stored, Mode::reprop},
                                     .plans = {planned(0, 1), planned(3, 2)},
                                     .batch = 32,
                                     .rounds = 1,
                                     .steps = 1,
                                     .forward_macs = 1.0});
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[3].contestant, (Contestant{Mode::automatic, 2}));
  EXPECT_EQ(rows[2].activation_peak_bytes, rows[1].activation_peak_bytes);
  EXPECT_GT(rows[3].activation_peak_bytes, rows[1].activation_peak_bytes);
  EXPECT_LT(rows[3].activation_peak_bytes, rows[0].activation_peak_bytes);
  EXPECT_EQ(rows[0].flops_per_step, 2.0 * 32 * 3.0);
  EXPECT_EQ(rows[1].flops_per_step, 2.0 * 32 * 4.0);
  EXPECT_EQ(rows[3].flops_per_step, 2.0 * 32 * 3.5);
  for (const MeasureRow& row : rows) EXPECT_FLOAT_EQ(row.loss, rows[0].loss);
}

}  // namespace
}  // namespace pareprop
