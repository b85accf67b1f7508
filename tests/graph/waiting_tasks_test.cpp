#include "pareprop/graph/waiting_tasks.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

bool always(int) { return true; }
bool never(int) { return false; }

TEST(WaitingTasks, AnyLanePrefersRecoveryThenGradientsThenWhatWasAddedFirst) {
  TaskGraph graph(LaneRule::any, 2);
  for (const TaskKind kind : {TaskKind::weight_gradient, TaskKind::gradient, TaskKind::recover,
                              TaskKind::gradient, TaskKind::recover, TaskKind::weight_gradient}) {
    graph.add({.kind = kind});
  }
  WaitingTasks waiting(graph);
  std::vector<int> order;
  for (int i = 0; i < graph.size(); ++i) {
    EXPECT_FALSE(waiting.empty(0));
    EXPECT_FALSE(waiting.empty(1));
    order.push_back(waiting.take(i % 2, always));
  }
  EXPECT_EQ(order, (std::vector<int>{2, 4, 1, 3, 0, 5}));
  EXPECT_TRUE(waiting.empty(0));
  EXPECT_TRUE(waiting.empty(1));
  EXPECT_EQ(waiting.take(0, always), WaitingTasks::kNone);
}

TEST(WaitingTasks, AnyLanePassesOverWhatIsNotReady) {
  TaskGraph graph(LaneRule::any, 2);
  for (int i = 0; i < 3; ++i) graph.add({.kind = TaskKind::recover});
  WaitingTasks waiting(graph);
  EXPECT_EQ(waiting.take(1, never), WaitingTasks::kNone);
  EXPECT_EQ(waiting.take(1, [](int id) { return id > 0; }), 1);
  EXPECT_EQ(waiting.take(0, [](int id) { return id > 0; }), 2);
  EXPECT_EQ(waiting.take(1, always), 0);
}

TEST(WaitingTasks, AFixedLaneTakesItsOwnInOrder) {
  TaskGraph graph(LaneRule::fixed, 3);
  graph.add({.kind = TaskKind::weight_gradient, .lane = 0});
  graph.add({.kind = TaskKind::recover, .lane = 1});
  graph.add({.kind = TaskKind::recover, .lane = 0});
  WaitingTasks waiting(graph);
  EXPECT_TRUE(waiting.empty(2));
  EXPECT_EQ(waiting.take(2, always), WaitingTasks::kNone);
  EXPECT_EQ(waiting.take(0, [](int id) { return id == 2; }), WaitingTasks::kNone);
  EXPECT_EQ(waiting.take(0, always), 0);
  EXPECT_EQ(waiting.take(0, always), 2);
  EXPECT_TRUE(waiting.empty(0));
  EXPECT_FALSE(waiting.empty(1));
  EXPECT_EQ(waiting.take(1, always), 1);
}

}  // namespace
}  // namespace pareprop
