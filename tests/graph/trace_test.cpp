#include "pareprop/graph/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "pareprop/graph/schedule.h"

namespace pareprop {
namespace {

using nlohmann::json;

TaskGraph traced_graph() {
  return backward_schedule(keep_plan(std::vector<Policy>(5, Policy::reverse)),
                           {.overlap = true, .deferred = 2});
}

Timeline traced_timeline(const TaskGraph& graph, double start) {
  Timeline timeline = simulate(graph, [](const Task& task) {
    return task.kind == TaskKind::recover ? 1.0 / 3000 : 2.0 / 7000;
  });
  for (Span& span : timeline.spans) {
    span.begin += start;
    span.end += start;
  }
  return timeline;
}

TEST(Trace, HasEveryTaskInMicrosecondsFromTheFirst) {
  const TaskGraph graph = traced_graph();
  const Timeline timeline = traced_timeline(graph, 50.0);
  const json trace = json::parse(chrome_trace(graph, timeline));
  std::map<int, json> slices;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") slices[event.at("args").at("task").get<int>()] = event;
  }
  ASSERT_EQ(static_cast<int>(slices.size()), graph.size());
  for (const Span& span : timeline.spans) {
    const json& slice = slices.at(span.task);
    EXPECT_EQ(slice.at("name"), label(graph[span.task]));
    EXPECT_NEAR(slice.at("ts").get<double>(), (span.begin - 50.0) * 1e6, 1e-3);
    EXPECT_NEAR(slice.at("dur").get<double>(), span.length() * 1e6, 2e-3);
    EXPECT_EQ(slice.at("args").at("lane"), span.lane);
    EXPECT_EQ(slice.at("args").at("block"), graph[span.task].block());
  }
}

TEST(Trace, RowsAreNamedHoldOneKindOfOneLaneAndDoNotOverlap) {
  const TaskGraph graph = traced_graph();
  const json trace = json::parse(chrome_trace(graph, traced_timeline(graph, 0.0)));
  std::map<int, std::string> names;
  std::map<int, double> row_end;
  std::map<int, std::set<std::string>> contents;
  for (const json& event : trace.at("traceEvents")) {
    const int tid = event.at("tid");
    if (event.at("name") == "thread_name") names[tid] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    contents[tid].insert("lane " + std::to_string(event.at("args").at("lane").get<int>()) + " " +
                         event.at("cat").get<std::string>());
    const double ts = event.at("ts");
    EXPECT_GE(ts, row_end[tid] - 1e-6);  // a thousandth of the unit they are written in
    row_end[tid] = ts + event.at("dur").get<double>();
  }
  ASSERT_EQ(contents.size(), 6U);  // three kinds on two lanes
  ASSERT_EQ(names.size(), 6U);
  for (const auto& [tid, content] : contents) {
    EXPECT_EQ(content, (std::set<std::string>{names.at(tid)}));
  }
}

TEST(Trace, ProcessNameIsEscaped) {
  const std::string name = "vit \"tiny\"\\\n";
  const json trace = json::parse(chrome_trace(TaskGraph{}, Timeline{}, name));
  ASSERT_EQ(trace.at("traceEvents").size(), 1U);
  EXPECT_EQ(trace.at("traceEvents")[0].at("args").at("name"), name);
}

TEST(Trace, RefusesTheTimelineOfAnotherGraph) {
  EXPECT_THROW(chrome_trace(traced_graph(), Timeline{}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop
