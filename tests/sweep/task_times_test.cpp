#include "pareprop/sweep/task_times.h"

#include <gtest/gtest.h>

namespace pareprop {
namespace {

TEST(TaskTimes, SumsByKindAndCountsOverlapOnce) {
  TaskGraph graph;
  graph.add({.kind = TaskKind::recover, .branch = 1, .lane = 1});
  graph.add({.kind = TaskKind::recover, .branch = 0, .lane = 1});
  graph.add({.kind = TaskKind::gradient, .branch = 1, .lane = 0});
  graph.add({.kind = TaskKind::weight_gradient, .branch = 1, .lane = 1});
  const Timeline timeline{
      {{0, 1, 0.0, 1.0}, {1, 1, 1.0, 3.0}, {2, 0, 1.5, 5.0}, {3, 1, 3.0, 3.25}}};
  TaskTimes times;
  times.add(graph, timeline);
  EXPECT_DOUBLE_EQ(times.recover_ms, 3000.0);
  EXPECT_DOUBLE_EQ(times.gradient_ms, 3500.0);
  EXPECT_DOUBLE_EQ(times.weight_gradient_ms, 250.0);
  EXPECT_DOUBLE_EQ(times.overlap_ms, 1500.0);
  times.add(graph, timeline);  // another stack
  EXPECT_DOUBLE_EQ(times.recover_ms, 6000.0);
  EXPECT_DOUBLE_EQ(times.overlap_ms, 3000.0);
}

}  // namespace
}  // namespace pareprop
