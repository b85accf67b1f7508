#include "pareprop/lanes/stream_lanes.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <stdexcept>
#include <string>

#include "pareprop/lanes/serial_lane.h"
#include "tests/lanes/gate.h"
#include "tests/lanes/random_backward.h"
#include "tests/lanes/small_graphs.h"
#include "tests/simulated_device/simulated_device.h"

namespace pareprop {
namespace {

using testing::essential_edges;
using testing::Gate;
using testing::HashedBackward;
using testing::id_of;
using testing::kMoment;
using testing::kNever;
using testing::on_fixed_lanes;
using testing::RandomBackward;
using testing::SimulatedDevice;

c10::Stream current_stream(int device = 0) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getStream(SimulatedDevice::device(device));
}

c10::Stream pool_stream(int device = 0) {
  return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1)
      .getStreamFromGlobalPool(SimulatedDevice::device(device));
}

RandomBackward fixed_backward(std::uint64_t seed) {
  RandomBackward backward(seed);
  backward.graph = on_fixed_lanes(backward.graph);
  return backward;
}

class StreamLanesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SimulatedDevice::set_delays(0, 0);
    SimulatedDevice::reset_counts();
  }
  void TearDown() override {
    SimulatedDevice::finish();
    EXPECT_EQ(current_stream().id(), 0) << "a stream was left behind as the current one";
  }
};

TEST_F(StreamLanesTest, TheSimulatedEventKeepsTheContractOfC10) {
  const c10::Stream a = pool_stream(), b = pool_stream();
  c10::Event event(c10::DeviceType::PrivateUse1);
  std::atomic<int> passed = 0;
  const auto wait_on_b_then = [&](std::function<void()> then) {
    event.block(b);
    const c10::StreamGuard guard(b);
    SimulatedDevice::enqueue(std::move(then));
  };
  Gate unrecorded, first, second, seen_first;
  wait_on_b_then([&] { unrecorded.open(); });
  EXPECT_TRUE(unrecorded.wait()) << "an event that was not recorded does not block";
  EXPECT_TRUE(event.query());

  const c10::StreamGuard guard(a);
  SimulatedDevice::enqueue([&] { EXPECT_TRUE(first.wait()); });
  event.record(a);
  wait_on_b_then([&] {
    ++passed;
    seen_first.open();
  });
  SimulatedDevice::enqueue([&] { EXPECT_TRUE(second.wait()); });
  event.record(a);
  EXPECT_FALSE(seen_first.wait(kMoment));
  first.open();
  EXPECT_TRUE(seen_first.wait()) << "waits for the recording it was issued after, not for the next";
  wait_on_b_then([&] { ++passed; });
  EXPECT_FALSE(event.query());
  EXPECT_EQ(passed, 1);
  second.open();
  event.synchronize();
  SimulatedDevice::finish();
  EXPECT_EQ(passed, 2);
  EXPECT_EQ(SimulatedDevice::counts().host_waits, 2);  // one query, one synchronize
}

TEST_F(StreamLanesTest, ComputeWhatOneThreadComputes) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  SerialLane serial;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const RandomBackward backward = fixed_backward(seed);
    SCOPED_TRACE(backward.text());
    SimulatedDevice::set_delays(seed, seed % 4 == 0 ? 0 : 60);
    HashedBackward oracle(backward), data(backward);
    oracle.forward();
    serial.run(backward.graph, [&](const Task& task) { oracle.run(task); });

    // Before and after the run there is work on the caller's stream that it must be in order with.
    std::vector<std::uint64_t> results;
    SimulatedDevice::enqueue([&] { data.forward(); });
    SimulatedDevice::reset_counts();
    lanes.run(backward.graph, [&](const Task& task) {
      SimulatedDevice::enqueue([&data, task] { data.run(task); });
    });
    EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
    SimulatedDevice::enqueue([&] { results = data.results(); });
    SimulatedDevice::finish();
    ASSERT_EQ(results, oracle.results());
  }
}

TEST_F(StreamLanesTest, EachTaskIsIssuedInOrderOnItsLanesStream) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  const c10::Stream caller = current_stream();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const RandomBackward backward = fixed_backward(seed);
    SCOPED_TRACE(backward.text());
    std::vector<int> order;
    std::map<int, c10::Stream> streams;
    lanes.run(backward.graph, [&](const Task& task) {
      order.push_back(id_of(backward.graph, task));
      const c10::Stream stream = streams.try_emplace(task.lane, current_stream()).first->second;
      EXPECT_EQ(current_stream(), stream);
      EXPECT_EQ(stream == caller, task.lane == 0);
    });
    ASSERT_EQ(static_cast<int>(order.size()), backward.graph.size());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    for (const auto& [lane, stream] : streams) {
      for (const auto& [other, its] : streams) EXPECT_EQ(stream == its, lane == other);
    }
  }
}

TEST_F(StreamLanesTest, ReturnsWhileTheDeviceIsStillAtIt) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  const RandomBackward backward = fixed_backward(3);
  Gate returned;
  bool in_time = false;
  std::atomic<int> runs = 0;
  SimulatedDevice::enqueue([&] { in_time = returned.wait(); });
  lanes.run(backward.graph, [&](const Task&) { SimulatedDevice::enqueue([&] { ++runs; }); });
  EXPECT_EQ(runs, 0) << "lanes must start after what the caller's stream had to do";
  returned.open();
  SimulatedDevice::finish();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(runs, backward.graph.size());
}

// The work of the needed task does not end before that of the one that needs it has begun, or a
// time has passed. With the edge that time always passes; without it, it never does.
bool begins_too_early(StreamLanes& lanes, const TaskGraph& graph, int id, int needed,
                      std::chrono::milliseconds time) {
  Gate begun;
  bool early = false;
  lanes.run(graph, [&](const Task& task) {
    const int issued = id_of(graph, task);
    SimulatedDevice::enqueue([&, issued] {
      if (issued == id) begun.open();
      if (issued == needed) early = begun.wait(time);
    });
  });
  SimulatedDevice::finish();
  return early;
}

TEST_F(StreamLanesTest, EveryEdgeIsWaitedFor) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  int edges = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const RandomBackward backward = fixed_backward(seed);
    SCOPED_TRACE(backward.text());
    const TaskGraph& graph = backward.graph;
    for (const auto& [id, needed] : essential_edges(graph)) {
      if (++edges % 3 != 0) continue;
      EXPECT_FALSE(begins_too_early(lanes, graph, id, needed, kMoment));
      EXPECT_TRUE(begins_too_early(lanes, graph.without_edge(id, needed), id, needed, kNever))
          << label(graph[id]) << " without " << label(graph[needed]);
    }
  }
  EXPECT_GT(edges, 60);
}

TEST_F(StreamLanesTest, ALostEdgeChangesTheResult) {
  // recover G1 on lane 1, gradient G1 on lane 0: without the edge the gradient finds no tape.
  StreamLanes lanes(SimulatedDevice::device(), 2);
  RandomBackward backward(0);
  backward.plan = keep_plan({Policy::reverse, Policy::reverse});
  backward.below.reset();
  backward.options = {.overlap = true};
  backward.ready = 0;
  backward.graph = on_fixed_lanes(backward_schedule(backward.plan, backward.options));
  const int recover = backward.graph.find(TaskKind::recover, 3);
  const int gradient = backward.graph.find(TaskKind::gradient, 3);
  ASSERT_GE(recover, 0);
  ASSERT_GE(gradient, 0);

  for (const bool lost : {false, true}) {
    const TaskGraph graph = lost ? backward.graph.without_edge(gradient, recover) : backward.graph;
    HashedBackward data(backward);
    data.forward();
    Gate begun;
    lanes.run(graph, [&](const Task& task) {
      SimulatedDevice::enqueue([&, task, id = id_of(graph, task)] {
        if (id == recover) begun.wait(lost ? kNever : kMoment);
        data.run(task);
        if (id == gradient) begun.open();
      });
    });
    SimulatedDevice::finish();
    EXPECT_EQ(data.results() == data.expected(), !lost);
  }
}

TEST_F(StreamLanesTest, WaitsAreNotRepeated) {
  StreamLanes lanes(SimulatedDevice::device(), 2);
  TaskGraph graph;
  graph.add({.branch = 0, .lane = 0, .needs = {}});
  graph.add({.branch = 1, .lane = 0, .needs = {}});
  graph.add({.branch = 2, .lane = 1, .needs = {0, 1}});  // one wait for both
  graph.add({.branch = 3, .lane = 1, .needs = {0}});     // none: waited for a later one
  graph.add({.branch = 4, .lane = 1, .needs = {1, 3}});  // none
  graph.add({.branch = 5, .lane = 0, .needs = {4}});     // one, which also ends lane 1
  for (int run = 0; run < 3; ++run) {
    SimulatedDevice::reset_counts();
    lanes.run(graph, [](const Task&) {});
    EXPECT_EQ(SimulatedDevice::counts().blocks, 2);   // 2, 5
    EXPECT_EQ(SimulatedDevice::counts().records, 4);  // start; 0, 1, 4
  }
  TaskGraph one_lane;
  one_lane.add({.needs = {}});
  one_lane.add({.needs = {0}});
  SimulatedDevice::reset_counts();
  lanes.run(one_lane, [](const Task&) {});
  EXPECT_EQ(SimulatedDevice::counts().blocks, 0);  // all is on the caller's stream
  EXPECT_EQ(SimulatedDevice::counts().records, 0);
}

TEST_F(StreamLanesTest, AWaitStandsForAllThatItsTaskHadWaitedFor) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  TaskGraph graph;
  graph.add({.branch = 0, .lane = 0, .needs = {}});
  graph.add({.branch = 1, .lane = 1, .needs = {0}});
  graph.add({.branch = 2, .lane = 2, .needs = {0, 1}});  // lane 1 had waited for lane 0
  graph.add({.branch = 3, .lane = 1, .needs = {2}});
  graph.add({.branch = 4, .lane = 0, .needs = {3, 2}});  // lane 1 had waited for lane 2
  SimulatedDevice::reset_counts();
  lanes.run(graph, [](const Task&) {});
  EXPECT_EQ(SimulatedDevice::counts().blocks, 4);
  EXPECT_FALSE(begins_too_early(lanes, graph, 4, 2, kMoment));
}

TEST_F(StreamLanesTest, AnErrorArrivesAndTheCallersStreamIsAfterWhatWasIssued) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  for (std::uint64_t seed = 0; seed < 15; ++seed) {
    const RandomBackward backward = fixed_backward(seed);
    SCOPED_TRACE(backward.text());
    const TaskGraph& graph = backward.graph;
    for (int bad = 0; bad < graph.size(); ++bad) {
      SimulatedDevice::set_delays(seed, 20);
      SimulatedDevice::reset_counts();
      std::atomic<int> runs = 0;
      int runs_seen = -1;
      try {
        lanes.run(graph, [&](const Task& task) {
          // Half of the bad task is issued too.
          SimulatedDevice::enqueue([&] { ++runs; });
          if (id_of(graph, task) == bad) throw std::runtime_error("task " + std::to_string(bad));
        });
        FAIL() << "the exception of task " << bad << " did not arrive";
      } catch (const std::runtime_error& error) {
        EXPECT_EQ(error.what(), "task " + std::to_string(bad));
      }
      EXPECT_EQ(current_stream().id(), 0);
      EXPECT_EQ(SimulatedDevice::counts().host_waits, 0);
      SimulatedDevice::enqueue([&] { runs_seen = runs; });
      SimulatedDevice::finish();
      EXPECT_EQ(runs_seen, bad + 1);
    }
    std::atomic<int> runs = 0;
    lanes.run(graph, [&](const Task&) { SimulatedDevice::enqueue([&] { ++runs; }); });
    SimulatedDevice::finish();
    EXPECT_EQ(runs, graph.size());
  }
}

class CountingStreams : public Observer {
 public:
  void on_begin(int task, int) override { begun.push_back(task); }
  void on_end(int task, int) override {
    ended.push_back(task);
    if (task == bad_end) throw std::domain_error("end");
  }
  std::vector<int> begun, ended;
  int bad_end = -1;
};

TEST_F(StreamLanesTest, TheObserverSeesEachTaskOnceAndMayThrow) {
  StreamLanes lanes(SimulatedDevice::device(), 3);
  const RandomBackward backward = fixed_backward(3);
  CountingStreams observer;
  lanes.run(
      backward.graph, [](const Task&) {}, &observer);
  EXPECT_EQ(static_cast<int>(observer.begun.size()), backward.graph.size());
  EXPECT_EQ(observer.begun, observer.ended);
  CountingStreams bad;
  bad.bad_end = 2;
  EXPECT_THROW(lanes.run(
                   backward.graph, [](const Task&) {}, &bad),
               std::domain_error);
  EXPECT_EQ(bad.begun.size(), 3u);
}

TEST_F(StreamLanesTest, StreamsAreOfItsDeviceWhateverTheCallerIsOn) {
  // The device of the executor is not the current one, and the caller is on a stream of the pool.
  StreamLanes lanes(SimulatedDevice::device(1), 2);
  const c10::Stream caller = pool_stream(1);
  {
    const c10::StreamGuard guard(caller);
    const c10::DeviceGuard elsewhere(SimulatedDevice::device(0));
    TaskGraph graph;
    graph.add({.lane = 0, .needs = {}});
    graph.add({.lane = 1, .needs = {0}});
    lanes.run(graph, [&](const Task& task) {
      EXPECT_EQ(current_stream(1) == caller, task.lane == 0);
      SimulatedDevice::enqueue([] {});
    });
    EXPECT_EQ(current_stream(1), caller);
    EXPECT_EQ(c10::impl::VirtualGuardImpl(caller.device_type()).getDevice().index(), 0);
  }
  EXPECT_EQ(current_stream(1).id(), 0);
}

TEST_F(StreamLanesTest, ACallerOnAnotherStreamBeginsAfterTheOneBefore) {
  StreamLanes lanes(SimulatedDevice::device(), 2);
  TaskGraph graph;
  graph.add({.lane = 0, .needs = {}});
  Gate first;
  bool waited = false;
  std::atomic<int> runs = 0;
  lanes.run(graph, [&](const Task&) {
    SimulatedDevice::enqueue([&] {
      waited = first.wait();
      ++runs;
    });
  });
  int runs_seen = -1;
  {
    const c10::StreamGuard guard(pool_stream());
    TaskGraph other;
    other.add({.lane = 1, .needs = {}});
    lanes.run(other, [&](const Task&) { SimulatedDevice::enqueue([&] { runs_seen = runs; }); });
  }
  first.open();
  SimulatedDevice::finish();
  EXPECT_TRUE(waited);
  EXPECT_EQ(runs_seen, 1);
}

TEST_F(StreamLanesTest, ARunInsideARunIsAnError) {
  StreamLanes lanes(SimulatedDevice::device(), 2);
  const RandomBackward backward = fixed_backward(3);
  EXPECT_THROW(lanes.run(backward.graph,
                         [&](const Task&) { lanes.run(backward.graph, [](const Task&) {}); }),
               std::logic_error);
}

TEST_F(StreamLanesTest, SaysWhatIsWrongWithItsArguments) {
  EXPECT_THROW(StreamLanes(c10::Device(c10::DeviceType::CPU), 2), std::invalid_argument);
  // No machine has so many.
  EXPECT_THROW(StreamLanes(c10::Device(c10::DeviceType::CUDA, 99), 2), std::invalid_argument);
  EXPECT_THROW(StreamLanes(c10::Device(c10::DeviceType::PrivateUse1, SimulatedDevice::kDevices), 2),
               std::invalid_argument);
  EXPECT_THROW(StreamLanes(SimulatedDevice::device(), 0), std::invalid_argument);
  StreamLanes one(c10::Device(c10::DeviceType::PrivateUse1), 1);
  EXPECT_EQ(one.lanes(), 1);
  TaskGraph graph;
  graph.add({.lane = 1, .needs = {}});
  EXPECT_THROW(one.run(graph, [](const Task&) {}), std::invalid_argument);
  EXPECT_THROW(one.run(TaskGraph(LaneRule::any, 1), [](const Task&) {}), std::invalid_argument);
  one.run(TaskGraph(), [](const Task&) { FAIL(); });
}

}  // namespace
}  // namespace pareprop
