#include "pareprop/graph/timeline.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "tests/graph/ancestors.h"
#include "tests/graph/random_case.h"

namespace pareprop {
namespace {

Task task_on(TaskKind kind, int branch, int lane, std::vector<int> needs) {
  return {.kind = kind, .branch = branch, .lane = lane, .needs = std::move(needs)};
}

TaskGraph two_lanes() {
  TaskGraph graph;
  graph.add(task_on(TaskKind::recover, 1, 1, {}));       // 0 .. 1
  graph.add(task_on(TaskKind::recover, 0, 1, {0}));      // 1 .. 2
  graph.add(task_on(TaskKind::gradient, 1, 0, {0}));     // 1 .. 4
  graph.add(task_on(TaskKind::gradient, 0, 0, {1, 2}));  // 4 .. 7
  graph.add(task_on(TaskKind::weight_gradient, 1, 1, {2})) /* 4 .. 6 */;
  return graph;
}

double cost(const Task& of) {
  return of.kind == TaskKind::recover ? 1.0 : of.kind == TaskKind::gradient ? 3.0 : 2.0;
}

TEST(Timeline, SimulatesFixedLanes) {
  const TaskGraph graph = two_lanes();
  const Timeline timeline = simulate(graph, cost);
  const double expected[][2] = {{0, 1}, {1, 2}, {1, 4}, {4, 7}, {4, 6}};
  ASSERT_EQ(timeline.spans.size(), 5U);
  for (int id = 0; id < 5; ++id) {
    const Span& span = timeline.spans[static_cast<std::size_t>(id)];
    EXPECT_EQ(span.task, id);
    EXPECT_EQ(span.lane, graph[id].lane);
    EXPECT_DOUBLE_EQ(span.begin, expected[id][0]) << id;
    EXPECT_DOUBLE_EQ(span.end, expected[id][1]) << id;
  }
  EXPECT_DOUBLE_EQ(timeline.makespan(), 7.0);
  EXPECT_DOUBLE_EQ(timeline.busy(0), 6.0);
  EXPECT_DOUBLE_EQ(timeline.busy(1), 4.0);
  EXPECT_DOUBLE_EQ(timeline.busy(2), 0.0);
  EXPECT_EQ(timeline.lanes(), 2);
  EXPECT_DOUBLE_EQ(overlapped(graph, timeline), 1.0);
}

TEST(Timeline, SimulatesLanesThatTakeAnyTask) {
  TaskGraph graph(LaneRule::any, 2);
  graph.add(task_on(TaskKind::weight_gradient, 2, 0, {}));  // 2 .. 4, when nothing else is ready
  graph.add(task_on(TaskKind::recover, 1, 0, {}));          // 0 .. 1
  graph.add(task_on(TaskKind::recover, 0, 0, {1}));         // 1 .. 2
  graph.add(task_on(TaskKind::gradient, 2, 0, {}));         // 0 .. 3
  graph.add(task_on(TaskKind::gradient, 1, 0, {1, 3}));     // 3 .. 6
  const Timeline timeline = simulate(graph, cost);
  const Span expected[] = {{0, 0, 2, 4}, {1, 0, 0, 1}, {2, 0, 1, 2}, {3, 1, 0, 3}, {4, 1, 3, 6}};
  ASSERT_EQ(timeline.spans.size(), 5U);
  for (const Span& span : expected) {
    const Span& simulated = timeline.spans[static_cast<std::size_t>(span.task)];
    EXPECT_EQ(simulated.task, span.task);
    EXPECT_EQ(simulated.lane, span.lane) << span.task;
    EXPECT_DOUBLE_EQ(simulated.begin, span.begin) << span.task;
    EXPECT_DOUBLE_EQ(simulated.end, span.end) << span.task;
  }
  EXPECT_DOUBLE_EQ(overlapped(graph, timeline), 2.0);
}

TEST(Timeline, EmptyGraph) {
  const Timeline timeline = simulate(TaskGraph{}, cost);
  EXPECT_EQ(timeline.makespan(), 0.0);
  EXPECT_EQ(timeline.lanes(), 0);
  EXPECT_EQ(overlapped(TaskGraph{}, timeline), 0.0);
}

TEST(Timeline, MeasuredTimesMayStartAnywhereAndComeInAnyOrder) {
  const TaskGraph graph = two_lanes();
  Timeline timeline = simulate(graph, cost);
  for (Span& span : timeline.spans) {
    span.begin += 100.0;
    span.end += 100.0;
  }
  std::swap(timeline.spans.front(), timeline.spans.back());
  EXPECT_DOUBLE_EQ(timeline.makespan(), 7.0);
  EXPECT_DOUBLE_EQ(overlapped(graph, timeline), 1.0);
}

TEST(Timeline, RefusesImpossibleCosts) {
  for (double wrong : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(simulate(two_lanes(), [&](const Task&) { return wrong; }), std::invalid_argument);
  }
}

TEST(Timeline, ChecksThatItIsOfTheGraph) {
  const TaskGraph graph = two_lanes();
  const Timeline good = simulate(graph, cost);
  EXPECT_NO_THROW(check_timeline(graph, good));
  Timeline missing = good, doubled = good, foreign = good, backwards = good;
  missing.spans.pop_back();
  doubled.spans[1].task = 0;
  foreign.spans[1].task = 5;
  std::swap(backwards.spans[1].begin, backwards.spans[1].end);
  for (const Timeline& wrong : {missing, doubled, foreign, backwards}) {
    EXPECT_THROW(check_timeline(graph, wrong), std::invalid_argument);
    EXPECT_THROW(overlapped(graph, wrong), std::invalid_argument);
  }
}

// Nothing starts too early and nothing waits without a reason.
TEST(Timeline, EveryTaskBeginsWhenItsLastAncestorEnds) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto options = testing::all_schedule_options();
    const auto test = testing::random_case(random, static_cast<int>(random() % 8),
                                           options[random() % options.size()]);
    const Timeline timeline = simulate(test.graph, [&](const Task&) {
      return std::uniform_real_distribution<double>(0.0, 3.0)(random);
    });
    for (int id = 0; id < test.graph.size(); ++id) {
      const auto before = testing::ancestors(test.graph, id);
      double last = 0.0;
      for (int i = 0; i < test.graph.size(); ++i) {
        if (before[static_cast<std::size_t>(i)]) {
          last = std::max(last, timeline.spans[static_cast<std::size_t>(i)].end);
        }
      }
      const double begin = timeline.spans[static_cast<std::size_t>(id)].begin;
      if (test.graph.rule() == LaneRule::any && test.deferred() > 0) {
        ASSERT_GE(begin, last) << "task " << id;  // all lanes may be at other tasks
      } else {
        ASSERT_EQ(begin, last) << "task " << id;
      }
    }
    for (const Span& a : timeline.spans) {
      for (const Span& b : timeline.spans) {
        if (a.task == b.task || a.lane != b.lane) continue;
        ASSERT_TRUE(a.end <= b.begin || b.end <= a.begin) << a.task << " and " << b.task;
      }
    }
    EXPECT_LE(overlapped(test.graph, timeline), timeline.makespan());
  }
}

}  // namespace
}  // namespace pareprop
