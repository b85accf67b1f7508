#include "pareprop/lanes/serial_lane.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tests/lanes/random_backward.h"

namespace pareprop {
namespace {

using testing::HashedBackward;
using testing::RandomBackward;

class Log : public Observer {
 public:
  void on_begin(int task, int lane) override { entries.push_back({task, lane, true}); }
  void on_end(int task, int lane) override { entries.push_back({task, lane, false}); }

  struct Entry {
    int task, lane;
    bool begin;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> entries;
};

TEST(SerialLane, RunsTheTasksInOrderOnTheCallersThread) {
  const RandomBackward backward(3);
  ASSERT_GT(backward.graph.size(), 4);
  SerialLane lane;
  std::vector<const Task*> seen;
  Log log;
  lane.run(
      backward.graph,
      [&, caller = std::this_thread::get_id()](const Task& task) {
        EXPECT_EQ(std::this_thread::get_id(), caller);
        EXPECT_EQ(log.entries.size(), 2 * seen.size() + 1);
        seen.push_back(&task);
      },
      &log);

  ASSERT_EQ(static_cast<int>(seen.size()), backward.graph.size());
  for (int id = 0; id < backward.graph.size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    EXPECT_EQ(seen[i], &backward.graph[id]);
    EXPECT_EQ(log.entries[2 * i], (Log::Entry{id, 0, true}));
    EXPECT_EQ(log.entries[2 * i + 1], (Log::Entry{id, 0, false}));
  }
  EXPECT_EQ(lane.lanes(), 1);
}

TEST(SerialLane, ComputesWhatTheChainSays) {
  SerialLane lane;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    HashedBackward data(backward);
    data.forward();
    lane.run(backward.graph, [&](const Task& task) { data.run(task); });
    ASSERT_EQ(data.results(), data.expected());
  }
}

TEST(SerialLane, StopsAtTheFirstException) {
  const RandomBackward backward(3);
  SerialLane lane;
  int runs = 0;
  Log log;
  const auto fail_at_third = [&](const Task&) {
    if (++runs == 3) throw std::runtime_error("third");
  };
  EXPECT_THROW(lane.run(backward.graph, fail_at_third, &log), std::runtime_error);
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(log.entries.size(), 5u);
  lane.run(backward.graph, [&](const Task&) { ++runs; });
  EXPECT_EQ(runs, 3 + backward.graph.size());
}

TEST(SerialLane, MayRunAGraphInsideATask) {
  const RandomBackward backward(3);
  SerialLane lane;
  int runs = 0;
  lane.run(backward.graph,
           [&](const Task&) { lane.run(backward.graph, [&](const Task&) { ++runs; }); });
  EXPECT_EQ(runs, backward.graph.size() * backward.graph.size());
}

}  // namespace
}  // namespace pareprop
