#include "pareprop/lanes/cpu_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "pareprop/lanes/serial_lane.h"
#include "tests/lanes/gate.h"
#include "tests/lanes/random_backward.h"
#include "tests/lanes/small_graphs.h"

namespace pareprop {
namespace {

using testing::essential_edges;
using testing::Gate;
using testing::HashedBackward;
using testing::id_of;
using testing::kMoment;
using testing::kNever;
using testing::on_fixed_lanes;
using testing::ping_pong;
using testing::RandomBackward;
using testing::side_by_side;

TEST(CpuLanes, ComputeWhatOneThreadComputes) {
  CpuLanes lanes(3);
  SerialLane serial;
  int overlapping = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    overlapping += backward.graph.lanes() > 1;
    HashedBackward oracle(backward), data(backward);
    oracle.forward();
    serial.run(backward.graph, [&](const Task& task) { oracle.run(task); });
    data.forward();
    lanes.run(backward.graph, [&](const Task& task) {
      // Shakes the order in which the lanes get on.
      const auto naps = std::hash<std::uint64_t>{}(seed * 31 + static_cast<unsigned>(task.branch)) %
                        (3 + static_cast<unsigned>(task.kind));
      for (std::uint64_t i = 0; i < naps; ++i) std::this_thread::yield();
      data.run(task);
    });
    ASSERT_EQ(data.results(), oracle.results());
  }
  EXPECT_GT(overlapping, 300);
}

TEST(CpuLanes, RunEachFixedLaneInOrderOnItsOwnThread) {
  CpuLanes lanes(3);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    const TaskGraph graph = on_fixed_lanes(backward.graph);
    std::vector<std::vector<int>> order(3);
    std::vector<std::thread::id> thread(3, std::this_thread::get_id());
    std::atomic<std::size_t> total{0};
    lanes.run(graph, [&](const Task& task) {
      ++total;
      const auto lane = static_cast<std::size_t>(task.lane);
      if (order[lane].empty()) thread[lane] = std::this_thread::get_id();
      EXPECT_EQ(thread[lane], std::this_thread::get_id());
      order[lane].push_back(id_of(graph, task));
    });
    for (std::size_t lane = 0; lane < 3; ++lane) {
      EXPECT_TRUE(std::is_sorted(order[lane].begin(), order[lane].end()));
      if (lane == 0 || order[lane].empty()) continue;
      EXPECT_NE(thread[lane], thread[0]);
    }
    EXPECT_EQ(static_cast<int>(total), graph.size());
    EXPECT_EQ(thread[0], std::this_thread::get_id());
  }
}

// Each in turn is held by the first task, so that the other must run the rest.
TEST(CpuLanes, WhicheverLaneIsFreeTakesTheNextTask) {
  CpuLanes lanes(2);
  for (const int busy : {0, 1}) {
    SCOPED_TRACE("lane " + std::to_string(busy) + " is busy");
    TaskGraph graph(LaneRule::any, 2);
    graph.add({.branch = 0});
    graph.add({.branch = 1});
    graph.add({.branch = 2, .needs = {1}});
    Gate begun, rest_has_run;
    std::vector<std::thread::id> ran(3), thread_of(2);
    lanes.run(
        graph,
        [&](const Task& task) {
          ran[static_cast<std::size_t>(task.branch)] = std::this_thread::get_id();
          if (task.branch == 0) {
            begun.open();
            EXPECT_TRUE(rest_has_run.wait());
          }
          if (task.branch == 2) rest_has_run.open();
        },
        nullptr,
        [&](int lane, const std::function<void()>& tasks) {
          thread_of[static_cast<std::size_t>(lane)] = std::this_thread::get_id();
          if (lane != busy) {
            EXPECT_TRUE(begun.wait());
          }
          tasks();
        });
    const std::thread::id held = thread_of[static_cast<std::size_t>(busy)];
    const std::thread::id other = thread_of[static_cast<std::size_t>(1 - busy)];
    EXPECT_NE(held, other);
    EXPECT_EQ(ran, (std::vector<std::thread::id>{held, other, other}));
  }
}

TEST(CpuLanes, AFreeLanePrefersRecoveryThenGradients) {
  TaskGraph graph(LaneRule::any, 1);
  graph.add({.kind = TaskKind::weight_gradient, .branch = 0});
  graph.add({.kind = TaskKind::gradient, .branch = 1});
  graph.add({.kind = TaskKind::recover, .branch = 2});
  graph.add({.kind = TaskKind::gradient, .branch = 3, .needs = {0}});
  graph.add({.kind = TaskKind::recover, .branch = 4, .needs = {1}});
  std::vector<int> order;
  CpuLanes(3).run(graph, [&, caller = std::this_thread::get_id()](const Task& task) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(task.branch);
  });
  EXPECT_EQ(order, (std::vector<int>{2, 1, 4, 0, 3}));
}

TEST(CpuLanes, TasksOfAnyLaneWaitForWhatTheyNeed) {
  CpuLanes lanes(3);
  TaskGraph graph(LaneRule::any, 3);
  graph.add({.branch = 0});
  for (int i = 1; i <= 7; ++i) graph.add({.branch = i, .needs = {i - 1}});
  std::vector<int> order;  // the needs make it a chain, so no lock
  lanes.run(graph, [&](const Task& task) { order.push_back(task.branch); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(CpuLanes, ReallyRunSideBySide) {
  CpuLanes lanes(2);
  Gate first, second;
  lanes.run(side_by_side(), [&](const Task& task) {
    (task.lane == 0 ? first : second).open();
    EXPECT_TRUE((task.lane == 0 ? second : first).wait());
  });
}

// One task that others may help with, then one that is on its own.
TaskGraph work_for_two() {
  TaskGraph graph(LaneRule::any, 2);
  graph.add({.branch = 0});
  graph.add({.branch = 1, .needs = {0}});
  return graph;
}

TEST(CpuLanes, ALaneWithoutATaskHelps) {
  CpuLanes lanes(2);
  for (const int shared : {0, 1}) {  // also in the last task, when the other lane has none to come
    std::atomic<int> calls = 0;
    Gate both;
    lanes.run(work_for_two(), [&](const Task& task) {
      if (task.branch != shared) return;
      lanes.share([&] {
        if (++calls == 2) both.open();
        EXPECT_TRUE(both.wait());
      });
      EXPECT_EQ(calls, 2);
    });
    EXPECT_EQ(calls, 2);
  }
}

// A call that has returned has left nothing.
TEST(CpuLanes, NobodyHelpsTwice) {
  CpuLanes lanes(2);
  std::atomic<int> calls = 0;
  Gate helped;
  lanes.run(work_for_two(), [&](const Task& task) {
    if (task.branch != 0) return;
    const auto owner = std::this_thread::get_id();
    lanes.share([&] {
      ++calls;
      if (std::this_thread::get_id() != owner) return helped.open();
      EXPECT_TRUE(helped.wait());
      std::this_thread::sleep_for(kMoment);
    });
  });
  EXPECT_EQ(calls, 2);
}

TEST(CpuLanes, WorkIsSharedOnlyWithTheLanesOfTheRun) {
  CpuLanes lanes(3);
  std::atomic<int> calls = 0;
  lanes.share([&] { ++calls; });  // outside of a run
  EXPECT_EQ(calls, 1);
  TaskGraph alone;
  alone.add({.branch = 0});
  lanes.run(alone, [&](const Task&) {
    lanes.share([&] {
      ++calls;
      std::this_thread::sleep_for(kMoment);
    });
  });
  EXPECT_EQ(calls, 2);
}

// Of the task that is shared, one that ends when sharing has begun, and one that is ready then.
TEST(CpuLanes, ATaskThatIsReadyComesBeforeHelp) {
  CpuLanes lanes(2);
  TaskGraph graph(LaneRule::any, 2);
  for (const int branch : {0, 1, 2}) graph.add({.branch = branch});
  Gate shared, last;
  std::atomic<bool> last_begun = false, helped_before = false;
  lanes.run(graph, [&](const Task& task) {
    if (task.branch == 1) {
      EXPECT_TRUE(shared.wait());
    }
    if (task.branch == 2) {
      last_begun = true;
      last.open();
    }
    if (task.branch != 0) return;
    const auto owner = std::this_thread::get_id();
    lanes.share([&] {
      if (std::this_thread::get_id() != owner) {
        if (!last_begun) helped_before = true;
        return;
      }
      shared.open();
      EXPECT_TRUE(last.wait());
    });
  });
  EXPECT_FALSE(helped_before);
}

// The needed task does not end before the one that needs it has begun, or a time has passed. With
// the edge that time always passes; without it, it never does.
bool begins_too_early(CpuLanes& lanes, const TaskGraph& graph, int id, int needed,
                      std::chrono::milliseconds time) {
  Gate begun;
  bool early = false;
  lanes.run(graph, [&](const Task& task) {
    if (id_of(graph, task) == id) begun.open();
    if (id_of(graph, task) == needed) early = begun.wait(time);
  });
  return early;
}

// Every third of its essential edges; returns how many there are.
int check_edges(CpuLanes& lanes, const TaskGraph& graph) {
  int edges = 0;
  for (const auto& [id, needed] : essential_edges(graph)) {
    if (++edges % 3 != 0) continue;
    EXPECT_FALSE(begins_too_early(lanes, graph, id, needed, kMoment));
    EXPECT_TRUE(begins_too_early(lanes, graph.without_edge(id, needed), id, needed, kNever))
        << label(graph[id]) << " without " << label(graph[needed]);
  }
  return edges;
}

TEST(CpuLanes, EveryEdgeBetweenFixedLanesIsWaitedFor) {
  CpuLanes lanes(3);
  int edges = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    edges += check_edges(lanes, on_fixed_lanes(backward.graph));
  }
  EXPECT_GT(edges, 60);
}

TEST(CpuLanes, EveryEdgeOfTasksForAnyLaneIsWaitedFor) {
  CpuLanes lanes(3);
  int edges = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const RandomBackward backward(seed);
    if (backward.graph.rule() == LaneRule::fixed || backward.graph.lanes() < 2) continue;
    SCOPED_TRACE(backward.text());
    edges += check_edges(lanes, backward.graph);
  }
  EXPECT_GT(edges, 60);
}

TEST(CpuLanes, AroundIsCalledOnEachLanesThreadThatHasTasks) {
  CpuLanes lanes(3);
  const TaskGraph graph = ping_pong(6);
  std::vector<std::atomic<int>> calls(3);
  std::vector<std::thread::id> around_thread(3), body_thread(3);
  lanes.run(
      graph,
      [&](const Task& task) {
        body_thread[static_cast<std::size_t>(task.lane)] = std::this_thread::get_id();
      },
      nullptr,
      [&](int lane, const std::function<void()>& tasks) {
        ++calls[static_cast<std::size_t>(lane)];
        around_thread[static_cast<std::size_t>(lane)] = std::this_thread::get_id();
        tasks();
      });
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1], 1);
  EXPECT_EQ(calls[2], 0);
  EXPECT_EQ(around_thread, body_thread);
  EXPECT_EQ(around_thread[0], std::this_thread::get_id());
}

TEST(CpuLanes, CallersFollowOneAnother) {
  CpuLanes lanes(2);
  const TaskGraph graph = ping_pong(6);
  int owner = -1;  // not atomic: runs of two callers that coincide are a race
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      for (int i = 0; i < 50; ++i) {
        lanes.run(graph, [&](const Task& task) {
          if (task.branch == 0) owner = caller;
          EXPECT_EQ(owner, caller);
          std::this_thread::yield();
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

int threads_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "Threads:") continue;
    int count = 0;
    status >> count;
    return count;
  }
  return -1;
}

// A joined thread can be listed for a moment longer.
int threads_once_settled(int expected) {
  const auto until = std::chrono::steady_clock::now() + kNever;
  while (threads_of_process() != expected && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }
  return threads_of_process();
}

TEST(CpuLanes, ThreadsLiveAsLongAsTheExecutor) {
  { CpuLanes warm_up(2); }
  const int before = threads_once_settled(threads_of_process());
  ASSERT_GT(before, 0);
  {
    CpuLanes lanes(3);
    EXPECT_EQ(threads_once_settled(before + 2), before + 2);
    const TaskGraph graph = ping_pong(6);
    for (int i = 0; i < 1000; ++i) {
      lanes.run(graph, [](const Task&) {});
      if (i % 100 != 0) continue;
      EXPECT_THROW(lanes.run(graph, [](const Task&) { throw 1; }), int);
      EXPECT_EQ(threads_of_process(), before + 2);
    }
  }
  EXPECT_EQ(threads_once_settled(before), before);
  for (int i = 0; i < 200; ++i) {
    CpuLanes lanes(1 + i % 4);
    if (i % 3 == 0) lanes.run(ping_pong(1), [](const Task&) {});
  }
  EXPECT_EQ(threads_once_settled(before), before);
}

TEST(CpuLanes, SleepWhileTheyWait) {
  CpuLanes lanes(3);
  const auto cpu_seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  constexpr auto kPause = std::chrono::milliseconds(200);
  double before = cpu_seconds();
  std::this_thread::sleep_for(kPause);
  EXPECT_LT(cpu_seconds() - before, 0.05) << "between runs";
  before = cpu_seconds();
  lanes.run(ping_pong(2), [&](const Task& task) {
    if (task.branch == 0) std::this_thread::sleep_for(kPause);
  });
  EXPECT_LT(cpu_seconds() - before, 0.05) << "while a task is needed";
}

TEST(CpuLanes, SaysWhatIsWrongWithItsArguments) {
  EXPECT_THROW(CpuLanes(0), std::invalid_argument);
  CpuLanes one(1);
  EXPECT_EQ(one.lanes(), 1);
  EXPECT_THROW(one.run(side_by_side(), [](const Task&) {}), std::invalid_argument);
  one.run(TaskGraph(), [](const Task&) { FAIL(); });
  EXPECT_THROW(one.run(TaskGraph(LaneRule::any, 2), [](const Task&) {}), std::invalid_argument);
  TaskGraph only_lane_two;
  only_lane_two.add({.lane = 2, .needs = {}});
  CpuLanes three(3);
  int runs = 0;
  three.run(only_lane_two, [&](const Task&) { ++runs; });
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace pareprop
