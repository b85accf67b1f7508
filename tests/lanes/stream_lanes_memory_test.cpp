#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "pareprop/lanes/stream_lanes.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using testing::SimulatedDevice;

TEST(StreamLanesMemory, MemoryIsKeptUntilEveryLaneIsAfterTheTaskThatHandsItBack) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  TaskGraph graph;
  graph.add({.branch = 0, .lane = 1, .needs = {}});   // hands memory back
  graph.add({.branch = 1, .lane = 0, .needs = {0}});  // lane 0 is after it
  graph.add({.branch = 2, .lane = 2, .needs = {}});   // lane 2 is not
  graph.add({.branch = 3, .lane = 2, .needs = {1}});  // now it is, by way of lane 0
  graph.add({.branch = 4, .lane = 0, .needs = {}});
  graph.add({.branch = 5, .lane = 1, .needs = {}});
  graph.add({.branch = 6, .lane = 2, .needs = {5}});  // hands back, and nobody comes after it
  std::weak_ptr<const int> first, last;
  std::vector<bool> kept;
  lanes.run(graph, [&](const Task& task) {
    kept.push_back(!first.expired());
    if (task.branch != 0 && task.branch != 6) return;
    auto memory = std::make_shared<const int>(1);
    (task.branch == 0 ? first : last) = memory;
    lanes.hand_back(std::move(memory), Executor::kAnyLane);
    EXPECT_FALSE((task.branch == 0 ? first : last).expired());
  });
  EXPECT_EQ(kept, (std::vector<bool>{false, true, true, false, false, false, false}));
  EXPECT_TRUE(last.expired());
}

TEST(StreamLanesMemory, WhatWasHandedBackGoesAfterAnErrorToo) {
  StreamLanes lanes(SimulatedDevice::device(), 2);
  TaskGraph graph;
  graph.add({.lane = 0, .needs = {}});
  std::weak_ptr<const int> memory;
  EXPECT_THROW(lanes.run(graph,
                         [&](const Task&) {
                           auto made = std::make_shared<const int>(1);
                           memory = made;
                           lanes.hand_back(std::move(made), Executor::kAnyLane);
                           throw std::runtime_error("half a task");
                         }),
               std::runtime_error);
  EXPECT_TRUE(memory.expired());
}

}  // namespace
}  // namespace pareprop
