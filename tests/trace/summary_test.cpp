#include "pareprop/trace/summary.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pareprop/graph/schedule.h"
#include "tests/trace/small_step.h"

namespace pareprop {
namespace {

using nlohmann::json;
using testing::small_step;

TEST(StepSummary, RecoveryBesideAGradientCountsOnceAndForItsOwnStage) {
  const StepSummary summary = summarise(small_step());
  EXPECT_DOUBLE_EQ(summary.seconds, 20.0);
  ASSERT_EQ(summary.stacks.size(), 2U);
  // G0 during the second of stage 2's gradient, F0 from 14 to 15.5.
  EXPECT_DOUBLE_EQ(summary.stacks[0].recover, 3.0);
  EXPECT_DOUBLE_EQ(summary.stacks[0].beside, 2.5);
  EXPECT_DOUBLE_EQ(summary.stacks[1].recover, 1.5);
  EXPECT_DOUBLE_EQ(summary.stacks[1].beside, 0.5);
  EXPECT_DOUBLE_EQ(summary.overlap.recover, 4.5);
  EXPECT_DOUBLE_EQ(summary.overlap.share(), 3.0 / 4.5);
  EXPECT_EQ(summary.sampled_peak_bytes, 4001);
}

TEST(StepSummary, AgreesWithTheTimelineOfOneStack) {
  const TaskGraph graph = backward_schedule(keep_plan(std::vector<Policy>(6, Policy::reverse)),
                                            {.overlap = true, .deferred = 2});
  const Timeline timeline = simulate(
      graph, [](const Task& task) { return task.kind == TaskKind::recover ? 1.5e-3 : 1e-3; });
  StepTrace trace{.stacks = 1};
  add_backward(trace, graph, timeline, 0, StepSpan::kNone);
  EXPECT_GT(summarise(trace).overlap.beside, 5e-3);
  EXPECT_NEAR(summarise(trace).overlap.beside, overlapped(graph, timeline), 1e-12);
}

TEST(StepSummary, JsonHasItsKeys) {
  const json object = json::parse(to_json(summarise(small_step())));
  EXPECT_DOUBLE_EQ(object.at("step_ms"), 20000.0);
  EXPECT_DOUBLE_EQ(object.at("recover_ms"), 4500.0);
  EXPECT_DOUBLE_EQ(object.at("beside_gradient_ms"), 3000.0);
  EXPECT_NEAR(object.at("overlap").get<double>(), 3.0 / 4.5, 1e-6);
  ASSERT_EQ(object.at("stages").size(), 2U);
  EXPECT_EQ(object.at("stages")[1].at("stage"), 2);
  EXPECT_DOUBLE_EQ(object.at("stages")[1].at("beside_gradient_ms"), 500.0);
  const json kinds = {
      {"data", 1000.0},          {"forward", 7000.0},         {"recover", 4500.0},
      {"gradient", 5000.0},      {"weight gradient", 1000.0}, {"other backward", 3000.0},
      {"communication", 8000.0}, {"optimizer", 1000.0}};
  EXPECT_EQ(object.at("kinds_ms"), kinds);
  EXPECT_EQ(object.at("sampled_peak_bytes"), 4001);
}

TEST(StepSummary, NothingRecoveredIsNoShare) {
  const json object = json::parse(to_json(summarise({.stacks = 1, .begin = 1, .end = 2})));
  EXPECT_TRUE(object.at("overlap").is_null());
  EXPECT_TRUE(object.at("stages")[0].at("overlap").is_null());
  EXPECT_EQ(object.at("recover_ms"), 0.0);
}

}  // namespace
}  // namespace pareprop
