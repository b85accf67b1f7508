#include "pareprop/graph/worst_meeting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

namespace pareprop {
namespace {

TaskGraph graph_of(const std::vector<Task>& tasks, TaskGraph graph = {}) {
  for (const Task& task : tasks) graph.add(task);
  return graph;
}

Task on_lane(int lane, std::vector<int> needs = {}) {
  return {.lane = lane, .needs = std::move(needs)};
}

TEST(WorstMeeting, OneLaneHasOneOrder) {
  const TaskGraph graph = graph_of({on_lane(0), on_lane(0), on_lane(0)});
  EXPECT_EQ(worst_meeting(graph, {{10, 4}, {7, -3}, {8, 0}}), 11);
}

TEST(WorstMeeting, TasksOfTwoLanesMeetAtTheirHighest) {
  const TaskGraph graph = graph_of({on_lane(0), on_lane(1), on_lane(1)});
  EXPECT_EQ(worst_meeting(graph, {{10, 0}, {1, 5}, {2, 0}}), 10 + 5 + 2);
}

TEST(WorstMeeting, NotWhereOneWaitsForTheOther) {
  const TaskGraph graph = graph_of({on_lane(0), on_lane(1, {0})});
  EXPECT_EQ(worst_meeting(graph, {{10, 0}, {6, 0}}), 10);
}

TEST(WorstMeeting, TasksOfAnyLaneKeepNoOrderButTakeALaneEach) {
  const std::vector<TaskBytes> bytes = {{4, 0}, {8, 0}, {1, 0}};
  const TaskGraph fixed = graph_of({on_lane(0), on_lane(0), on_lane(1)});
  EXPECT_EQ(worst_meeting(fixed, bytes), 8 + 1);
  const TaskGraph any = graph_of({Task{}, Task{}, Task{}}, TaskGraph(LaneRule::any, 2));
  EXPECT_EQ(worst_meeting(any, bytes), 8 + 4);  // not all three: there are two lanes
}

TEST(WorstMeeting, OfNothingIsNothing) { EXPECT_EQ(worst_meeting({}, {}), 0); }

TEST(WorstMeeting, RefusesBytesOfAnotherGraph) {
  EXPECT_THROW(worst_meeting(graph_of({on_lane(0)}), {}), std::invalid_argument);
}

// Every set of tasks that may have ended, tried one by one.
std::int64_t by_trying_all(const TaskGraph& graph, const std::vector<TaskBytes>& bytes) {
  const int count = graph.size();
  auto waits = [&](int id, int other) {
    const bool order =
        graph.rule() == LaneRule::fixed && graph[id].lane == graph[other].lane && other < id;
    return order || std::count(graph[id].needs.begin(), graph[id].needs.end(), other) > 0;
  };
  std::int64_t worst = 0;
  for (unsigned ended = 0; ended < 1U << count; ++ended) {
    auto may_run = [&](int id) {
      for (int other = 0; other < count; ++other) {
        if (waits(id, other) && (ended >> other & 1U) == 0) return false;
      }
      return true;
    };
    bool possible = true;
    std::int64_t live = 0;
    std::vector<std::int64_t> running;
    for (int id = 0; id < count; ++id) {
      const TaskBytes& own = bytes[static_cast<std::size_t>(id)];
      if ((ended >> id & 1U) != 0) {
        possible = possible && may_run(id);
        live += own.change;
      } else if (may_run(id)) {
        running.push_back(own.most);
      }
    }
    if (!possible) continue;
    std::sort(running.rbegin(), running.rend());
    for (int i = 0; i < std::min<int>(graph.lanes(), static_cast<int>(running.size())); ++i) {
      live += running[static_cast<std::size_t>(i)];
    }
    worst = std::max(worst, live);
  }
  return worst;
}

TEST(WorstMeeting, IsTheWorstOfAllInRandomGraphs) {
  std::mt19937 random(7);
  auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 400; ++i) {
    const bool fixed = i % 2 == 0;
    TaskGraph graph(fixed ? LaneRule::fixed : LaneRule::any, 1 + below(3));
    std::vector<TaskBytes> bytes;
    for (int id = 0, count = 1 + below(11); id < count; ++id) {
      Task task = on_lane(fixed ? below(3) : 0);
      for (int other = 0; other < id; ++other) {
        if (below(4) == 0) task.needs.push_back(other);
      }
      graph.add(std::move(task));
      const int change = below(20) - 10;
      bytes.push_back({std::max(0, change) + below(20), change});
    }
    ASSERT_EQ(worst_meeting(graph, bytes), by_trying_all(graph, bytes)) << "graph " << i;
  }
}

}  // namespace
}  // namespace pareprop
