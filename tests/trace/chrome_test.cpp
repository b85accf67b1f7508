#include "pareprop/trace/chrome.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "pareprop/trace/summary.h"
#include "tests/trace/small_step.h"

namespace pareprop {
namespace {

using nlohmann::json;
using testing::kStart;
using testing::small_step;

std::map<int, std::string> row_names(const json& trace) {
  std::map<int, std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "thread_name") {
      names[event.at("tid").get<int>()] = event.at("args").at("name");
    }
  }
  return names;
}

TEST(StepChrome, RowsAreInOrderAndOnlyThoseThatAreNeeded) {
  std::vector<std::string> names;
  for (const auto& [tid, name] : row_names(json::parse(chrome_trace(small_step())))) {
    EXPECT_GT(tid, 1);
    names.push_back(name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"data", "forward", "lane 0 gradient", "lane 1 recover",
                                             "lane 2 weight gradient", "other backward",
                                             "communication", "communication 2", "optimizer"}));
}

TEST(StepChrome, SlicesAreInMicrosecondsFromTheBeginningAndDoNotOverlapInARow) {
  const StepTrace step = small_step();
  const json trace = json::parse(chrome_trace(step));
  std::map<std::string, std::vector<const StepSpan*>> expected;
  for (const StepSpan& span : step.spans) expected[span.name].push_back(&span);
  std::map<int, double> row_end;
  std::size_t slices = 0;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++slices;
    const double ts = event.at("ts"), end = ts + event.at("dur").get<double>();
    double& busy_until = row_end[event.at("tid").get<int>()];
    EXPECT_GE(ts, busy_until - 1e-6) << event;
    busy_until = end;
    const auto& same = expected.at(event.at("name"));
    EXPECT_TRUE(std::any_of(same.begin(), same.end(), [&](const StepSpan* span) {
      return std::abs((span->begin - kStart) * 1e6 - ts) < 1e-2 &&
             std::abs((span->end - kStart) * 1e6 - end) < 1e-2 &&
             event.at("cat") == name(span->kind);
    })) << event;
  }
  EXPECT_EQ(slices, step.spans.size());
}

TEST(StepChrome, TasksHaveTheirPlace) {
  const json trace = json::parse(chrome_trace(small_step()));
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") != "stage 1 recover G0") continue;
    EXPECT_EQ(event.at("args"), (json{{"stage", 1}, {"block", 0}, {"branch", "G"}, {"lane", 1}}));
    return;
  }
  FAIL() << "no such slice";
}

TEST(StepChrome, MemoryIsACounterByTagAndInAll) {
  const StepTrace step = small_step();
  const json trace = json::parse(chrome_trace(step));
  std::vector<json> by_tag, in_all;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "C") continue;
    (event.at("name") == "memory" ? by_tag : in_all).push_back(event);
  }
  ASSERT_EQ(by_tag.size(), 3U);
  ASSERT_EQ(in_all.size(), 3U);
  EXPECT_EQ(by_tag[1].at("args"), (json{{"parameters", 1000}, {"tape", 3000}}));
  EXPECT_EQ(in_all[1].at("args"), (json{{"bytes", 4001}}));
  EXPECT_DOUBLE_EQ(by_tag[1].at("ts"), 8e6);
}

TEST(StepChrome, CarriesTheSummaryAndAnEscapedTitle) {
  StepTrace step = small_step();
  step.title = "\"a\"\\\n";
  const json trace = json::parse(chrome_trace(step));
  EXPECT_EQ(trace.at("otherData"), json::parse(to_json(summarise(step))));
  EXPECT_EQ(trace.at("traceEvents")[0].at("args").at("name"), step.title);
}

TEST(StepChrome, AnEmptyStepIsAnEmptyTrace) {
  const json trace = json::parse(chrome_trace(StepTrace{}));
  EXPECT_EQ(trace.at("traceEvents").size(), 1U);
}

}  // namespace
}  // namespace pareprop
