#include "pareprop/reversible/torch_lanes.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "pareprop/ops/shared_parts.h"

extern "C" __attribute__((weak)) int MKL_Get_Max_Threads();

namespace pareprop {
namespace {

struct Counts {
  int openmp = 0;
  int mkl = 0;

  bool operator==(const Counts&) const = default;
};

// MKL's is OpenMP's where torch has none.
Counts counts() {
  const int openmp = omp_get_max_threads();
  return {openmp, MKL_Get_Max_Threads != nullptr ? MKL_Get_Max_Threads() : openmp};
}

void PrintTo(const Counts& counts, std::ostream* out) {
  *out << counts.openmp << " OpenMP, " << counts.mkl << " MKL";
}

TaskGraph a_task_on_each_lane() {
  TaskGraph graph;
  for (const int lane : {0, 1}) {
    graph.add({.kind = TaskKind::gradient, .branch = lane, .lane = lane});
  }
  return graph;
}

// at::set_num_threads cannot be undone in a process: for the other tests it stays at what it was.
class TorchLanes : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(4); }
  void TearDown() override { at::set_num_threads(before_); }

  const int before_ = at::get_num_threads();
};

TEST_F(TorchLanes, EachLaneHasItsShareAlsoAfterTorchWasToldACount) {
  const TaskGraph graph = a_task_on_each_lane();
  std::array<Counts, 2> seen;
  TorchCpuLanes(2).run(graph, [&](const Task& task) {
    at::parallel_for(0, 4, 1, [](std::int64_t, std::int64_t) {});  // torch looks at its count here
    seen[static_cast<std::size_t>(task.lane)] = counts();
  });
  EXPECT_EQ(seen[0], (Counts{2, 2}));
  EXPECT_EQ(seen[1], (Counts{2, 2}));
  EXPECT_EQ(counts(), (Counts{4, 4}));
}

// Also with the threads of a lane that has nothing else to do.
TEST_F(TorchLanes, PartsOfATaskAreSharedWithALaneThatIsFree) {
  TaskGraph graph(LaneRule::any, 2);
  graph.add({.kind = TaskKind::gradient});
  std::latch all(4);  // two threads of each of two lanes: ends only if all of them come
  std::mutex mutex;
  std::set<std::int64_t> parts;
  TorchCpuLanes(2).run(graph, [&](const Task&) {
    run_parts(8, [&](NextPart& next) {
      all.arrive_and_wait();
      for (std::int64_t part; next.take(part);) {
        const std::lock_guard lock(mutex);
        EXPECT_TRUE(parts.insert(part).second) << part;
      }
    });
    EXPECT_EQ(parts.size(), 8U);
  });
}

std::ptrdiff_t threads_of_the_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

// Otherwise they would spin on the cores that the lanes are for.
TEST_F(TorchLanes, ThreadsOfTheForwardPassAreGoneWhileLanesRun) {
  at::parallel_for(0, 4, 1, [](std::int64_t, std::int64_t) {});
  const std::ptrdiff_t before = threads_of_the_process();
  ASSERT_GE(before, 4);
  const TaskGraph graph = a_task_on_each_lane();
  bool gone = false;
  TorchCpuLanes(2).run(graph, [&](const Task& task) {
    if (task.lane != 0) return;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!gone && std::chrono::steady_clock::now() < deadline) {
      gone = threads_of_the_process() < before;  // one lane has joined, three threads left
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(gone);
}

std::set<pid_t> threads_of_a_region() {
  std::set<pid_t> ids;
  std::mutex mutex;
#pragma omp parallel
  {
    const std::lock_guard lock(mutex);
    ids.insert(gettid());
  }
  return ids;
}

// What is compiled or cached for a thread is still there.
TEST_F(TorchLanes, ThreadsOfTheForwardPassOutliveLanesOfOneThread) {
  at::set_num_threads(2);
  const auto before = threads_of_a_region();
  ASSERT_EQ(before.size(), 2u);
  const TaskGraph graph = a_task_on_each_lane();
  TorchCpuLanes lanes(2);
  std::array<Counts, 2> seen;
  lanes.run(graph, [&](const Task& task) { seen[static_cast<std::size_t>(task.lane)] = counts(); });
  EXPECT_EQ(seen[0], (Counts{1, 1}));
  EXPECT_EQ(seen[1], (Counts{1, 1}));
  for (const int failing : {0, 1}) {
    EXPECT_THROW(lanes.run(graph,
                           [&](const Task& task) {
                             if (task.lane == failing) throw std::runtime_error("on purpose");
                           }),
                 std::runtime_error);
  }
  EXPECT_EQ(threads_of_a_region(), before);
  EXPECT_EQ(counts(), (Counts{2, 2}));
}

// OpenMP lets threads sleep after every region while there are more of them than cores, also of
// pools that nobody uses.
TEST_F(TorchLanes, ThreadsOfALaneAreGoneWhenItEnds) {
  const TaskGraph graph = a_task_on_each_lane();
  TorchCpuLanes lanes(2);
  std::set<pid_t> ids;
  lanes.run(graph, [&](const Task& task) {
    if (task.lane == 0) return;
    ids = threads_of_a_region();
    ids.erase(gettid());
  });
  ASSERT_EQ(ids.size(), 1u);
  const auto gone = [&] {
    return !std::filesystem::exists("/proc/self/task/" + std::to_string(*ids.begin()));
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!gone() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(gone());
}

TEST_F(TorchLanes, AScopeEndsWithWhatWasBefore) {
  const auto check = [](const Counts& before) {
    {
      const IntraOpThreads one(1);
      EXPECT_EQ(counts(), (Counts{1, 1}));
      {
        const IntraOpThreads three(3);
        EXPECT_EQ(counts(), (Counts{3, 3}));
      }
      EXPECT_EQ(counts(), (Counts{1, 1}));
    }
    EXPECT_EQ(counts(), before);
  };
  check({4, 4});
  std::thread([&] { check({4, 4}); }).join();
}

}  // namespace
}  // namespace pareprop
