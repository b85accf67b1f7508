#include "pareprop/graph/task_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "tests/graph/ancestors.h"

namespace pareprop {
namespace {

Task task(TaskKind kind, int branch, int lane, std::vector<int> needs, int stack = 0) {
  return {.kind = kind, .branch = branch, .lane = lane, .needs = std::move(needs), .stack = stack};
}

TEST(Task, Labels) {
  EXPECT_EQ(label(task(TaskKind::recover, 6, 0, {})), "recover F3");
  EXPECT_EQ(label(task(TaskKind::gradient, 1, 0, {})), "gradient G0");
  EXPECT_EQ(label(task(TaskKind::weight_gradient, 2, 0, {})), "weight gradient F1");
  EXPECT_EQ(label(task(TaskKind::recover, 11, 0, {}, 1)), "recover G5 below");
}

TEST(TaskGraph, AddsFindsAndCountsLanes) {
  TaskGraph graph;
  EXPECT_EQ(graph.size(), 0);
  EXPECT_EQ(graph.lanes(), 1);
  EXPECT_EQ(graph.add(task(TaskKind::recover, 3, 1, {})), 0);
  EXPECT_EQ(graph.add(task(TaskKind::gradient, 3, 0, {0})), 1);
  EXPECT_EQ(graph.add(task(TaskKind::recover, 3, 1, {0}, 1)), 2);
  EXPECT_EQ(graph.lanes(), 2);
  EXPECT_EQ(graph.find(TaskKind::recover, 3), 0);
  EXPECT_EQ(graph.find(TaskKind::recover, 3, 1), 2);
  EXPECT_EQ(graph.find(TaskKind::gradient, 3), 1);
  EXPECT_EQ(graph.find(TaskKind::gradient, 2), -1);
}

TEST(TaskGraph, HasTheLanesItWasGivenAndWithFixedOnesThoseOfItsTasks) {
  EXPECT_EQ(TaskGraph().rule(), LaneRule::fixed);
  TaskGraph any(LaneRule::any, 3), fixed(LaneRule::fixed, 2);
  any.add(task(TaskKind::gradient, 0, 0, {}));
  EXPECT_EQ(any.rule(), LaneRule::any);
  EXPECT_EQ(any.lanes(), 3);
  EXPECT_EQ(fixed.lanes(), 2);
  fixed.add(task(TaskKind::gradient, 0, 0, {}));
  EXPECT_EQ(fixed.lanes(), 2);
  fixed.add(task(TaskKind::gradient, 1, 3, {}));
  EXPECT_EQ(fixed.lanes(), 4);
}

TEST(TaskGraph, RefusesWhatWouldNotRun) {
  TaskGraph graph;
  graph.add(task(TaskKind::recover, 0, 0, {}));
  EXPECT_THROW(graph.add(task(TaskKind::gradient, 0, 0, {1})), std::invalid_argument);   // itself
  EXPECT_THROW(graph.add(task(TaskKind::gradient, 0, 0, {2})), std::invalid_argument);   // later
  EXPECT_THROW(graph.add(task(TaskKind::gradient, 0, 0, {-1})), std::invalid_argument);  // unknown
  EXPECT_THROW(graph.add(task(TaskKind::gradient, 0, -1, {})), std::invalid_argument);
  EXPECT_THROW(graph.add(task(TaskKind::gradient, -1, 0, {})), std::invalid_argument);
  EXPECT_EQ(graph.size(), 1);
  EXPECT_EQ(graph.lanes(), 1);
  TaskGraph any(LaneRule::any, 2);
  EXPECT_THROW(any.add(task(TaskKind::gradient, 0, 1, {})), std::invalid_argument);
  EXPECT_EQ(any.size(), 0);
  for (const LaneRule rule : {LaneRule::fixed, LaneRule::any}) {
    EXPECT_THROW(TaskGraph(rule, 0), std::invalid_argument);
  }
}

// All that must end first, by the plainest closure: direct needs and, on fixed lanes, the lane's
// earlier tasks, repeated.
std::vector<bool> slow_ancestors(const TaskGraph& graph, int id) {
  std::vector<bool> before(static_cast<std::size_t>(graph.size()), false);
  auto visit = [&](auto&& self, int at) -> void {
    std::vector<int> direct = graph[at].needs;
    for (int i = 0; i < at; ++i) {
      const bool in_order = graph.rule() == LaneRule::fixed && graph[i].lane == graph[at].lane;
      if (in_order) direct.push_back(i);
    }
    for (int i : direct) {
      if (before[static_cast<std::size_t>(i)]) continue;
      before[static_cast<std::size_t>(i)] = true;
      self(self, i);
    }
  };
  visit(visit, id);
  return before;
}

TEST(TaskGraph, AncestorsOfRandomGraphs) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const int lanes = 1 + static_cast<int>(random() % 6);
    const bool fixed = seed % 2 == 0;
    TaskGraph graph(fixed ? LaneRule::fixed : LaneRule::any, lanes);
    for (int id = 0; id < 24; ++id) {
      std::vector<int> needs;
      while (id > 0 && random() % 3 == 0) needs.push_back(static_cast<int>(random() % id));
      const int lane = fixed ? static_cast<int>(random() % lanes) : 0;
      graph.add(task(TaskKind::gradient, id, lane, needs));
    }
    for (int id = 0; id < graph.size(); ++id) {
      ASSERT_EQ(testing::ancestors(graph, id), slow_ancestors(graph, id)) << "task " << id;
    }
  }
}

TEST(TaskGraph, WithoutEdgeRemovesOnlyThatNeed) {
  TaskGraph graph;
  graph.add(task(TaskKind::recover, 0, 1, {}));
  graph.add(task(TaskKind::gradient, 1, 2, {}));
  graph.add(task(TaskKind::gradient, 0, 0, {0, 1}));
  const TaskGraph cut = graph.without_edge(2, 0);
  EXPECT_EQ(testing::ancestors(cut, 2), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(testing::ancestors(graph, 2), (std::vector<bool>{true, true, false}));
}

}  // namespace
}  // namespace pareprop
