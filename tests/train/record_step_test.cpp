#include "pareprop/train/record_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/trace/summary.h"

namespace pareprop::train {
namespace {

std::shared_ptr<models::Model> small_swin(bool plain = false) {
  return models::make_model("swin_cifar",
                            {.depths = {2, 3}, .width = 24, .drop_path = 0.0, .plain = plain}, {});
}

std::map<StepKind, int> counts(const StepTrace& trace) {
  std::map<StepKind, int> found;
  for (const StepSpan& span : trace.spans) ++found[span.kind];
  return found;
}

bool has(const StepTrace& trace, const std::string& name) {
  return std::any_of(trace.spans.begin(), trace.spans.end(),
                     [&](const StepSpan& span) { return span.name == name; });
}

class TraceStep : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { memory::install_caching_allocator(); }
};

TEST_F(TraceStep, HasEveryTaskOfEveryStackOnOneClock) {
  const auto model = small_swin();
  ASSERT_EQ(model->stacks().size(), 2U);
  const StepTrace trace = record_step(*model, {.batch = 2, .steps = 2}).trace;
  auto found = counts(trace);
  EXPECT_EQ(found[StepKind::data], 1);
  EXPECT_EQ(found[StepKind::forward], 2 * 5 + 3);
  EXPECT_EQ(found[StepKind::gradient], 2 * 5);
  EXPECT_EQ(found[StepKind::other_backward], 3);
  EXPECT_EQ(found[StepKind::optimizer], 1);
  EXPECT_EQ(found[StepKind::communication], 0);
  // The tail of the last stack is kept, the rest recovered.
  EXPECT_GT(found[StepKind::recover], 0);
  EXPECT_LT(found[StepKind::recover], 2 * 5);
  for (const StepSpan& span : trace.spans) {
    EXPECT_GE(span.begin, trace.begin) << span.name;
    EXPECT_LE(span.begin, span.end) << span.name;
    EXPECT_LE(span.end, trace.end) << span.name;
  }
  std::set<std::pair<StepKind, std::string>> names;
  for (const StepSpan& span : trace.spans) {
    EXPECT_TRUE(names.emplace(span.kind, span.name).second) << span.name << " comes twice";
  }
  for (const char* expected : {"stage 1 recover F0", "stage 1 recover G1", "stage 2 recover F0",
                               "stage 2 gradient G2", "boundary of stages 1 and 2"}) {
    EXPECT_TRUE(has(trace, expected)) << expected;
  }
}

TEST_F(TraceStep, WhatIsRecoveredAheadBelongsToTheStageBelow) {
  const auto model = small_swin();
  const StepPlan plan = uniform_plan(Policy::reverse, /*overlap=*/true, model->depths());
  const StepTrace trace = record_step(*model, {.plan = plan, .batch = 2, .steps = 1}).trace;
  const auto upper = std::find_if(trace.runs.begin(), trace.runs.end(), [](const StackRun& run) {
    return run.backward && run.stack == 1;
  });
  ASSERT_NE(upper, trace.runs.end());
  const auto ahead = std::count_if(trace.spans.begin(), trace.spans.end(), [&](const auto& span) {
    return span.stack == 0 && is_task(span.kind) && span.end <= upper->end;
  });
  EXPECT_EQ(ahead, 2);  // one block of two branches
}

TEST_F(TraceStep, ABatchInPartsIsOneStepOfSeveralPasses) {
  const auto whole = small_swin(), cut = small_swin();
  const RecordedStep one = record_step(*whole, {.batch = 4, .steps = 1});
  const RecordedStep two = record_step(*cut, {.batch = 4, .parts = 2, .steps = 1});
  EXPECT_NEAR(two.loss, one.loss, 1e-5);
  const auto backward_passes = [](const RecordedStep& recorded) {
    return std::count_if(recorded.trace.runs.begin(), recorded.trace.runs.end(),
                         [](const StackRun& run) { return run.backward; });
  };
  EXPECT_EQ(backward_passes(two), 2 * backward_passes(one));
  EXPECT_LT(two.memory.activation_peak, one.memory.activation_peak);
}

TEST_F(TraceStep, MemoryIsSampledFromBeginningToEnd) {
  const auto model = small_swin();
  const RecordedStep traced = record_step(*model, {.batch = 4, .steps = 2});
  const StepTrace& trace = traced.trace;
  ASSERT_EQ(trace.tags.size(), memory::kTags);
  ASSERT_GT(trace.samples.size(), 2U * 20U);  // at both ends of every task, and between
  EXPECT_TRUE(
      std::is_sorted(trace.samples.begin(), trace.samples.end(),
                     [](const MemorySample& a, const MemorySample& b) { return a.time < b.time; }));
  EXPECT_GE(trace.samples.front().time, trace.begin);
  std::int64_t parameters = 0;
  for (const auto& parameter : model->parameters()) {
    parameters += static_cast<std::int64_t>(parameter.nbytes());
  }
  for (const MemorySample& sample : trace.samples) EXPECT_GE(sample.bytes[0], parameters);
  const std::int64_t sampled = summarise(trace).sampled_peak_bytes;
  EXPECT_LE(sampled, traced.memory.total_peak);
  EXPECT_GT(static_cast<double>(sampled), 0.5 * static_cast<double>(traced.memory.total_peak));
}

std::set<int> lanes_of_tasks(const StepTrace& trace) {
  std::set<int> lanes;
  for (const StepSpan& span : trace.spans) {
    if (is_task(span.kind)) lanes.insert(span.lane);
  }
  return lanes;
}

// Lanes, not times: whether two tasks of microseconds met is up to the machine.
TEST_F(TraceStep, OnlyOverlappingModesRecoverBesideAGradient) {
  const auto model = small_swin();
  for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop}) {
    const StepTrace trace =
        record_step(*model, {.plan = model->plan_of(mode), .batch = 2, .steps = 1}).trace;
    const StepSummary summary = summarise(trace);
    EXPECT_EQ(summary.overlap.recover > 0.0, mode != Mode::stored) << pareprop::name(mode);
    EXPECT_EQ(summary.overlap.beside, 0.0) << pareprop::name(mode);
    EXPECT_EQ(lanes_of_tasks(trace).size(), 1U) << pareprop::name(mode);
  }
  StepTrace trace = record_step(*model, {.batch = 8, .steps = 2}).trace;
  // A lane may be so slow to wake that the other has done it all.
  for (int i = 0; i < 20 && lanes_of_tasks(trace).size() < 2; ++i) {
    trace = record_step(*model, {.batch = 8, .steps = 2}).trace;
  }
  EXPECT_EQ(lanes_of_tasks(trace).size(), 2U);
  const Overlap overlap = summarise(trace).overlap;
  EXPECT_GT(overlap.recover, 0.0);
  EXPECT_GE(overlap.share(), 0.0);
  EXPECT_LE(overlap.share(), 1.0);
}

TEST_F(TraceStep, LeavesThePlanAsItWas) {
  const auto model = small_swin();
  model->set_mode(Mode::checkpoint);
  record_step(*model, {.plan = model->plan_of(Mode::stored), .batch = 2, .steps = 1});
  EXPECT_EQ(model->plan(), model->plan_of(Mode::checkpoint));
}

TEST_F(TraceStep, APlainNetworkHasTasksToo) {
  const auto model = small_swin(/*plain=*/true);
  StepPlan plan = model->recomputing_plan(/*overlap=*/true);
  const StepTrace trace = record_step(*model, {.plan = plan, .batch = 2, .steps = 1}).trace;
  EXPECT_EQ(trace.stacks, 2);
  EXPECT_EQ(trace.runs.size(), 4U);  // forward and backward of each
  for (const StepKind kind : {StepKind::recover, StepKind::gradient}) {
    EXPECT_TRUE(std::any_of(trace.spans.begin(), trace.spans.end(),
                            [&](const StepSpan& span) { return span.kind == kind; }));
  }
}

TEST_F(TraceStep, RefusesWhatCannotBe) {
  const auto model = small_swin();
  EXPECT_THROW(record_step(*model, {.steps = 0}), std::invalid_argument);
  EXPECT_THROW(record_step(*model, {.batch = 0}), std::invalid_argument);
  EXPECT_THROW(record_step(*model, {.parts = 0}), std::invalid_argument);
  EXPECT_THROW(record_step(*model, {.batch = 4, .parts = 3}), std::invalid_argument);
  const auto plain = small_swin(true);
  EXPECT_THROW(record_step(*plain, {.plan = plain->plan_of(Mode::pareprop)}),
               std::invalid_argument);
  EXPECT_THROW(record_step(*model, {.plan = StepPlan{}}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::train
