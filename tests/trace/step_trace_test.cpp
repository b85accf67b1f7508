#include "pareprop/trace/step_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tests/trace/small_step.h"

namespace pareprop {
namespace {

using testing::kStart;
using testing::small_step;

std::vector<StepSpan> spans_of(const StepTrace& trace, StepKind kind) {
  std::vector<StepSpan> found;
  std::copy_if(trace.spans.begin(), trace.spans.end(), std::back_inserter(found),
               [&](const StepSpan& span) { return span.kind == kind; });
  std::sort(found.begin(), found.end(),
            [](const StepSpan& a, const StepSpan& b) { return a.begin < b.begin; });
  return found;
}

void expect_spans(const std::vector<StepSpan>& spans,
                  const std::vector<std::tuple<std::string, double, double>>& expected) {
  ASSERT_EQ(spans.size(), expected.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto& [name, begin, end] = expected[i];
    EXPECT_EQ(spans[i].name, name);
    EXPECT_DOUBLE_EQ(spans[i].begin, kStart + begin) << name;
    EXPECT_DOUBLE_EQ(spans[i].end, kStart + end) << name;
  }
}

TEST(StepTrace, NamesTasksByTheirRealStage) {
  const StepTrace trace = small_step();
  expect_spans(spans_of(trace, StepKind::recover), {{"stage 2 recover F0", 9.5, 11},
                                                    {"stage 1 recover G0", 11, 12},
                                                    {"stage 1 recover F0", 14, 16}});
  expect_spans(spans_of(trace, StepKind::weight_gradient),
               {{"stage 1 weight gradient G0", 14.5, 15.5}});
  for (const StepSpan& span : spans_of(trace, StepKind::recover)) {
    EXPECT_EQ("stage " + std::to_string(span.stack + 1), span.name.substr(0, 7));
  }
}

TEST(StepTrace, NamesWhatLiesBetweenTheStacks) {
  const StepTrace trace = small_step();
  expect_spans(spans_of(trace, StepKind::forward), {{"embedding", 1, 2},
                                                    {"stage 1 forward F0", 2, 3},
                                                    {"stage 1 forward G0", 3, 4},
                                                    {"boundary of stages 1 and 2", 4, 5},
                                                    {"stage 2 forward F0", 5, 6},
                                                    {"stage 2 forward G0", 6, 7},
                                                    {"head and loss", 7, 8}});
  expect_spans(
      spans_of(trace, StepKind::other_backward),
      {{"head and loss", 8, 9}, {"boundary of stages 1 and 2", 13, 14}, {"embedding", 17, 18}});
}

TEST(StepTrace, ANetworkOfOneStackHasNoStages) {
  StepTrace trace{.stacks = 1};
  TaskGraph graph;
  graph.add({.kind = TaskKind::gradient, .branch = 3});
  add_backward(trace, graph, {{{.task = 0, .begin = 1, .end = 2}}}, 0, StepSpan::kNone);
  ASSERT_EQ(trace.spans.size(), 1U);
  EXPECT_EQ(trace.spans[0].name, "gradient G1");
  EXPECT_EQ(trace.spans[0].branch, 3);
  EXPECT_EQ(stage_name(trace, 0), "");
}

TEST(StepTrace, ANetworkWithoutStacksHasItsPassesWhole) {
  StepTrace trace{.begin = kStart, .end = kStart + 3};
  add_between_stacks(trace, false, kStart, kStart + 1);
  add_between_stacks(trace, true, kStart + 1, kStart + 3);
  expect_spans(trace.spans, {{"forward", 0, 1}, {"backward", 1, 3}});
  EXPECT_EQ(trace.spans[1].kind, StepKind::other_backward);
}

TEST(StepTrace, EveryMicroStepHasItsOwnGaps) {
  StepTrace trace{.stacks = 1, .begin = kStart, .end = kStart + 8};
  for (const double shift : {0.0, 4.0}) {
    add_forward(trace, testing::timeline_from({{0, 0, shift + 1, shift + 2}}), 0);
  }
  add_between_stacks(trace, false, kStart, kStart + 4);
  add_between_stacks(trace, false, kStart + 4, kStart + 8);
  expect_spans(spans_of(trace, StepKind::forward), {{"embedding", 0, 1},
                                                    {"forward F0", 1, 2},
                                                    {"head and loss", 2, 4},
                                                    {"embedding", 4, 5},
                                                    {"forward F0", 5, 6},
                                                    {"head and loss", 6, 8}});
}

TEST(StepTrace, RefusesTheTimelineOfAnotherGraph) {
  StepTrace trace{.stacks = 2};
  EXPECT_THROW(add_backward(trace, testing::upper_graph(), Timeline{}, 1, 0),
               std::invalid_argument);
  EXPECT_TRUE(trace.spans.empty());
}

}  // namespace
}  // namespace pareprop
