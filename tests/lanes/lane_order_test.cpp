#include "pareprop/lanes/lane_order.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace pareprop {
namespace {

TaskGraph three_lanes() {
  TaskGraph graph;
  graph.add({.branch = 0, .lane = 0, .needs = {}});
  graph.add({.branch = 1, .lane = 2, .needs = {0}});  // hands memory of lanes 0 and 1 back
  graph.add({.branch = 2, .lane = 0, .needs = {1}});  // lane 0 is after it
  graph.add({.branch = 3, .lane = 1, .needs = {}});   // lane 1 is not
  graph.add({.branch = 4, .lane = 1, .needs = {2}});  // now it is, by way of lane 0
  graph.add({.branch = 5, .lane = 0, .needs = {}});
  return graph;
}

TEST(LaneOrder, ALaneWaitsForWhatItIsNotOrderedAfter) {
  const TaskGraph graph = three_lanes();
  LaneOrder order(graph);
  std::vector<std::vector<int>> waits;
  for (int id = 0; id < graph.size(); ++id) {
    waits.push_back(order.begin(id));
    order.end(id);
  }
  EXPECT_EQ(waits, (std::vector<std::vector<int>>{{}, {0}, {1}, {}, {2}, {}}));
  EXPECT_EQ(order.lanes_to_join(), std::vector<int>{1}) << "lane 0 is after all of lane 2";
}

// Nobody else allocates in its place.
TEST(LaneOrder, MemoryGoesWhenItsOwnerIsAfterTheTask) {
  const TaskGraph graph = three_lanes();
  LaneOrder order(graph);
  std::weak_ptr<const int> of_0, of_1, of_any;
  std::vector<int> kept_until(3, -1);
  for (int id = 0; id < graph.size(); ++id) {
    order.begin(id);
    if (!of_0.expired()) kept_until[0] = id;
    if (!of_1.expired()) kept_until[1] = id;
    if (!of_any.expired()) kept_until[2] = id;
    if (id == 1) {
      const auto hand_back = [&](std::weak_ptr<const int>& seen, int owner) {
        auto memory = std::make_shared<const int>(1);
        seen = memory;
        order.hand_back(std::move(memory), owner);
      };
      hand_back(of_0, 0);
      hand_back(of_1, 1);
      hand_back(of_any, Executor::kAnyLane);
    }
    order.end(id);
  }
  EXPECT_EQ(kept_until, (std::vector<int>{-1, 3, 3}));
}

TEST(LaneOrder, WhatIsLeftGoesWithIt) {
  const TaskGraph graph = three_lanes();
  std::weak_ptr<const int> left;
  {
    LaneOrder order(graph);
    order.begin(0);
    auto memory = std::make_shared<const int>(1);
    left = memory;
    order.hand_back(std::move(memory), 1);
    order.end(0);
    EXPECT_FALSE(left.expired());
  }
  EXPECT_TRUE(left.expired());
}

}  // namespace
}  // namespace pareprop
