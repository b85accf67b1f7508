#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "pareprop/lanes/cpu_lanes.h"
#include "tests/graph/ancestors.h"
#include "tests/lanes/gate.h"
#include "tests/lanes/random_backward.h"
#include "tests/lanes/small_graphs.h"

// Note [Errors cross lanes], and every way in which a run could hang.

namespace pareprop {
namespace {

using testing::Gate;
using testing::id_of;
using testing::ping_pong;
using testing::RandomBackward;
using testing::side_by_side;

TEST(CpuLanesErrors, ErrorsOfEveryTaskArriveAndStopWhatNeedsIt) {
  CpuLanes lanes(3);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    const TaskGraph& graph = backward.graph;
    for (int bad = 0; bad < graph.size(); ++bad) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(graph.size()));
      try {
        lanes.run(graph, [&](const Task& task) {
          const int id = id_of(graph, task);
          ++runs[static_cast<std::size_t>(id)];
          if (id == bad) throw std::runtime_error("task " + std::to_string(id));
        });
        FAIL() << "the exception of task " << bad << " did not arrive";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "task " + std::to_string(bad));
      }
      for (int id = 0; id < graph.size(); ++id) {
        const int count = runs[static_cast<std::size_t>(id)];
        const bool must_not = testing::ancestors(graph, id)[static_cast<std::size_t>(bad)];
        const bool must = id == bad || testing::ancestors(graph, bad)[static_cast<std::size_t>(id)];
        EXPECT_LE(count, must_not ? 0 : 1) << id;
        EXPECT_GE(count, must ? 1 : 0) << id;
      }
    }
    std::atomic<int> runs = 0;
    lanes.run(graph, [&](const Task&) { ++runs; });
    EXPECT_EQ(runs, graph.size());
  }
}

TEST(CpuLanesErrors, ErrorsOfSharedWorkArriveFromBothSides) {
  CpuLanes lanes(2);
  TaskGraph graph(LaneRule::any, 2);
  graph.add({.branch = 0});
  for (const bool helper_fails : {false, true}) {
    std::atomic<int> calls = 0;
    try {
      lanes.run(graph, [&](const Task&) {
        const auto owner = std::this_thread::get_id();
        Gate both;
        lanes.share([&] {
          if (++calls == 2) both.open();
          EXPECT_TRUE(both.wait());
          const bool helper = std::this_thread::get_id() != owner;
          if (helper == helper_fails) throw std::runtime_error(helper ? "helper" : "owner");
        });
      });
      FAIL() << "the exception did not arrive";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), helper_fails ? "helper" : "owner");
    }
    EXPECT_EQ(calls, 2);
  }
  std::atomic<int> runs = 0;
  lanes.run(graph, [&](const Task&) { ++runs; });
  EXPECT_EQ(runs, 1);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they map what they like

// In a child that has room for the stacks of a few threads.
TEST(CpuLanesErrors, AThreadThatCannotBeStartedIsAnError) {
  const pid_t child = fork();
  if (child == 0) {
    std::ifstream statm("/proc/self/statm");
    rlim_t pages = 0;
    statm >> pages;
    const rlim_t room = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{40} << 20);
    const rlimit limit{room, room};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const CpuLanes lanes(64);
      _exit(1);
    } catch (const std::runtime_error& error) {
      _exit(std::string(error.what()).find("could not be started") != std::string::npos ? 0 : 2);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it was ended by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

#endif

TEST(CpuLanesErrors, TheFirstOfTwoErrorsArrives) {
  CpuLanes lanes(2);
  for (int first = 0; first < 2; ++first) {
    Gate other_has_begun, first_has_failed;
    const auto body = [&](const Task& task) {
      if (task.lane == first) {
        EXPECT_TRUE(other_has_begun.wait());
      } else {
        other_has_begun.open();
        EXPECT_TRUE(first_has_failed.wait());
      }
      throw std::runtime_error(std::to_string(task.lane));
    };
    const auto around = [&](int lane, const std::function<void()>& tasks) {
      tasks();
      if (lane == first) first_has_failed.open();
    };
    try {
      lanes.run(side_by_side(), body, nullptr, around);
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(first));
    }
  }
}

class Counting : public Observer {
 public:
  explicit Counting(const TaskGraph& graph)
      : begun(static_cast<std::size_t>(graph.size())),
        ended(static_cast<std::size_t>(graph.size())),
        graph_(graph) {}
  void on_begin(int task, int lane) override {
    check_lane(task, lane);
    EXPECT_EQ(begun[static_cast<std::size_t>(task)]++, 0);
    if (task == bad_begin) throw std::domain_error("begin");
  }
  void on_end(int task, int lane) override {
    check_lane(task, lane);
    EXPECT_EQ(begun[static_cast<std::size_t>(task)], 1);
    EXPECT_EQ(ended[static_cast<std::size_t>(task)]++, 0);
    if (task == bad_end) throw std::domain_error("end");
  }
  std::vector<std::atomic<int>> begun, ended;
  int bad_begin = -1, bad_end = -1;

 private:
  void check_lane(int task, int lane) const {
    const bool any = graph_.rule() == LaneRule::any;
    EXPECT_TRUE(any ? lane >= 0 && lane < graph_.lanes() : lane == graph_[task].lane) << lane;
  }

  const TaskGraph& graph_;
};

TEST(CpuLanesErrors, TheObserverSeesEachTaskOnce) {
  CpuLanes lanes(3);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    Counting observer(backward.graph);
    lanes.run(
        backward.graph, [](const Task&) {}, &observer);
    for (const auto& count : observer.begun) EXPECT_EQ(count, 1);
    for (const auto& count : observer.ended) EXPECT_EQ(count, 1);
  }
}

TEST(CpuLanesErrors, WhatAnObserverThrowsArrives) {
  CpuLanes lanes(2);
  const TaskGraph graph = ping_pong(6);
  for (int bad = 0; bad < graph.size(); ++bad) {
    for (const bool at_begin : {true, false}) {
      Counting observer(graph);
      (at_begin ? observer.bad_begin : observer.bad_end) = bad;
      std::atomic<int> runs = 0;
      EXPECT_THROW(lanes.run(
                       graph, [&](const Task&) { ++runs; }, &observer),
                   std::domain_error);
      EXPECT_EQ(runs, bad + (at_begin ? 0 : 1));
    }
  }
}

TEST(CpuLanesErrors, AnAroundThatBreaksItsContractIsAnError) {
  CpuLanes lanes(2);
  const TaskGraph graph = ping_pong(8);
  const auto body = [](const Task&) {};
  for (int bad = 0; bad < 2; ++bad) {
    const auto around = [&](const std::function<void(const std::function<void()>&)>& broken) {
      lanes.run(graph, body, nullptr, [&](int lane, const std::function<void()>& tasks) {
        lane == bad ? broken(tasks) : tasks();
      });
    };
    EXPECT_THROW(around([](const auto&) { throw std::range_error("before"); }), std::range_error);
    EXPECT_THROW(around([](const auto& tasks) {
                   tasks();
                   throw std::range_error("after");
                 }),
                 std::range_error);
    EXPECT_THROW(around([](const auto&) {}), std::logic_error);
    EXPECT_THROW(around([](const auto& tasks) {
                   tasks();
                   tasks();
                 }),
                 std::logic_error);
    EXPECT_NO_THROW(around([](const auto& tasks) { tasks(); }));
  }
}

TEST(CpuLanesErrors, AnAroundThatCatchesEverythingDoesNotHideAnError) {
  CpuLanes lanes(2);
  const auto run = [&] {
    lanes.run(
        ping_pong(4),
        [](const Task& task) {
          if (task.branch == 3) throw std::range_error("body");
        },
        nullptr,
        [](int, const std::function<void()>& tasks) {
          try {
            tasks();
          } catch (...) {
          }
        });
  };
  EXPECT_THROW(run(), std::range_error);
}

TEST(CpuLanesErrors, ARunInsideARunOfTheSameExecutorIsAnError) {
  CpuLanes lanes(2), other(2);
  const TaskGraph graph = ping_pong(4);
  const auto nothing = [](const Task&) {};
  for (int inside = 0; inside < 4; ++inside) {
    EXPECT_THROW(lanes.run(graph,
                           [&](const Task& task) {
                             if (task.branch == inside) lanes.run(graph, nothing);
                           }),
                 std::logic_error);
    // Also from the threads of another executor.
    EXPECT_THROW(lanes.run(graph,
                           [&](const Task& task) {
                             if (task.branch != inside) return;
                             other.run(graph, [&](const Task& inner) {
                               if (inner.branch == 3) lanes.run(graph, nothing);
                             });
                           }),
                 std::logic_error);
  }
  std::atomic<int> runs = 0;
  lanes.run(graph, [&](const Task&) { other.run(graph, [&](const Task&) { ++runs; }); });
  EXPECT_EQ(runs, 16);
}

}  // namespace
}  // namespace pareprop
