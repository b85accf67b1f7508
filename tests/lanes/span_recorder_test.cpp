#include "pareprop/lanes/span_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "pareprop/lanes/cpu_lanes.h"
#include "tests/graph/ancestors.h"
#include "tests/lanes/random_backward.h"

namespace pareprop {
namespace {

using testing::RandomBackward;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double clock_seconds() { return seconds_since({}); }

TEST(SpanRecorder, RecordsEachTaskWhereTheGraphAllowsIt) {
  CpuLanes lanes(3);
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const RandomBackward backward(seed);
    SCOPED_TRACE(backward.text());
    const double start = clock_seconds();
    SpanRecorder recorder;
    lanes.run(
        backward.graph, [](const Task&) { std::this_thread::yield(); }, &recorder);
    const double end = clock_seconds();

    const Timeline timeline = recorder.timeline();
    ASSERT_EQ(static_cast<int>(timeline.spans.size()), backward.graph.size());
    std::vector<const Span*> by_task(timeline.spans.size(), nullptr);
    for (const Span& span : timeline.spans) by_task[static_cast<std::size_t>(span.task)] = &span;
    EXPECT_TRUE(std::is_sorted(timeline.spans.begin(), timeline.spans.end(),
                               [](const Span& a, const Span& b) { return a.begin < b.begin; }));
    for (int id = 0; id < backward.graph.size(); ++id) {
      const Span* span = by_task[static_cast<std::size_t>(id)];
      ASSERT_NE(span, nullptr);
      if (backward.graph.rule() == LaneRule::fixed) {
        EXPECT_EQ(span->lane, backward.graph[id].lane);
      } else {
        EXPECT_GE(span->lane, 0);
        EXPECT_LT(span->lane, backward.graph.lanes());
      }
      EXPECT_GE(span->begin, start);
      EXPECT_LE(span->begin, span->end);
      EXPECT_LE(span->end, end);
      const std::vector<bool> before = testing::ancestors(backward.graph, id);
      for (int other = 0; other < id; ++other) {
        if (!before[static_cast<std::size_t>(other)]) continue;
        EXPECT_LE(by_task[static_cast<std::size_t>(other)]->end, span->begin);
      }
    }
  }
}

TEST(SpanRecorder, MeasuresSeconds) {
  SpanRecorder recorder;
  const auto start = std::chrono::steady_clock::now();
  recorder.on_begin(4, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  recorder.on_end(4, 1);
  const double at_most = seconds_since(start);
  const Timeline timeline = recorder.timeline();
  ASSERT_EQ(timeline.spans.size(), 1u);
  const double length = timeline.spans[0].end - timeline.spans[0].begin;
  EXPECT_GE(length, 0.020);
  EXPECT_LE(length, at_most);
}

TEST(SpanRecorder, StartsAnewAfterReset) {
  SpanRecorder recorder;
  recorder.on_begin(0, 0);
  recorder.on_end(0, 0);
  recorder.on_begin(1, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const double reset = clock_seconds();
  recorder.reset();
  recorder.on_end(1, 0);
  EXPECT_TRUE(recorder.timeline().spans.empty());
  recorder.on_begin(2, 0);
  recorder.on_end(2, 0);
  const Timeline timeline = recorder.timeline();
  ASSERT_EQ(timeline.spans.size(), 1u);
  EXPECT_EQ(timeline.spans[0].task, 2);
  EXPECT_GE(timeline.spans[0].begin, reset);
  EXPECT_LE(timeline.spans[0].end, clock_seconds());
}

TEST(SpanRecorder, TellsAnotherObserverOutsideTheTimeOfTheTask) {
  struct Other : Observer {
    void on_begin(int task, int lane) override { told.push_back({task, lane, clock_seconds(), 0}); }
    void on_end(int /*task*/, int /*lane*/) override { told.back().end = clock_seconds(); }
    std::vector<Span> told;
  } other;
  SpanRecorder recorder(&other);
  recorder.on_begin(3, 1);
  recorder.on_end(3, 1);
  ASSERT_EQ(other.told.size(), 1U);
  EXPECT_EQ(other.told[0].task, 3);
  EXPECT_EQ(other.told[0].lane, 1);
  const Span span = recorder.timeline().spans.at(0);
  EXPECT_LE(other.told[0].begin, span.begin);
  EXPECT_GE(other.told[0].end, span.end);
}

TEST(SpanRecorder, LeavesOutATaskThatThrew) {
  TaskGraph graph;
  graph.add({.lane = 0, .needs = {}});
  graph.add({.lane = 1, .needs = {0}});
  CpuLanes lanes(2);
  SpanRecorder recorder;
  const auto fail_on_lane_1 = [](const Task& task) {
    if (task.lane == 1) throw std::runtime_error("lane 1");
  };
  EXPECT_THROW(lanes.run(graph, fail_on_lane_1, &recorder), std::runtime_error);
  EXPECT_EQ(recorder.timeline().spans.size(), 1u);
  lanes.run(
      graph, [](const Task&) {}, &recorder);
  EXPECT_EQ(recorder.timeline().spans.size(), 3u);
}

TEST(SpanRecorder, IsThreadSafe) {
  SpanRecorder recorder;
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      for (int task = 0; task < 500; ++task) {
        recorder.on_begin(task, lane);
        recorder.on_end(task, lane);
        if (task % 100 == 0) recorder.timeline();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(recorder.timeline().spans.size(), 2000u);
}

}  // namespace
}  // namespace pareprop
