#include "pareprop/trace/step_svg.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "tests/draw/xml_reader.h"
#include "tests/trace/small_step.h"

namespace pareprop {
namespace {

using testing::read_xml;
using testing::small_step;
using testing::XmlElement;

std::vector<std::pair<double, double>> corners(const XmlElement& polygon) {
  std::istringstream text(polygon.attributes.at("points"));
  std::vector<std::pair<double, double>> found;
  double x = 0.0, y = 0.0;
  for (char comma = 0; text >> x >> comma >> y;) found.emplace_back(x, y);
  return found;
}

TEST(StepSvg, EverySpanAndStageIsABoxInsideThePageWithATooltip) {
  const StepTrace step = small_step();
  const XmlElement svg = read_xml(step_svg(step));
  const auto groups = svg.all("g");
  ASSERT_EQ(groups.size(), step.spans.size() + step.runs.size());
  for (const XmlElement* group : groups) {
    const XmlElement& box = *group->all("rect", "box").at(0);
    EXPECT_GE(box.number("x"), 0.0);
    EXPECT_GT(box.number("width"), 0.0);
    EXPECT_LE(box.number("x") + box.number("width"), svg.number("width"));
    EXPECT_LE(box.number("y") + box.number("height"), svg.number("height"));
    EXPECT_NE(group->all("title").at(0)->text.find(" ms ("), std::string::npos);
  }
  EXPECT_EQ(svg.all("rect", "stage").size(), 4U);
  // Those of a legend are not in a group.
  EXPECT_EQ(svg.all("rect", "recover").size(), 3U + 1U);
  EXPECT_EQ(svg.all("rect", "weight").size(), 1U + 1U);
}

TEST(StepSvg, MemoryIsStackedOnTheSameAxisOfTime) {
  const XmlElement svg = read_xml(step_svg(small_step()));
  const auto areas = svg.all("polygon");
  ASSERT_EQ(areas.size(), 2U);
  const auto parameters = corners(*areas[0]), tape = corners(*areas[1]);
  // What is flat needs no corners between its ends.
  ASSERT_EQ(parameters.size(), 4U);
  ASSERT_EQ(tape.size(), 6U);
  // Upper edge from left to right, then the lower one back.
  EXPECT_DOUBLE_EQ(tape[5].second, parameters[0].second);
  EXPECT_DOUBLE_EQ(tape[4].second, parameters[1].second);
  EXPECT_DOUBLE_EQ(tape[5].first, parameters[0].first);
  EXPECT_DOUBLE_EQ(tape[3].first, parameters[1].first);
  const double base = parameters[3].second;
  EXPECT_NEAR((base - tape[1].second) / (base - parameters[1].second), 4.0, 1e-3);
  // The backward pass begins where the second sample is.
  for (const XmlElement* group : svg.all("g")) {
    const std::string tip = group->all("title").at(0)->text;
    if (tip.rfind("head and loss: 8000", 0) != 0) continue;
    EXPECT_NEAR(group->all("rect").at(0)->number("x"), tape[1].first, 0.011);
    return;
  }
  FAIL() << "no head in the backward pass";
}

TEST(StepSvg, SaysWhatItShows) {
  const XmlElement svg = read_xml(step_svg(small_step()));
  EXPECT_EQ(svg.all("text", "title").at(0)->text, "small <net>");
  std::string words;
  for (const XmlElement* word : svg.all("text", "word")) words += word->text + "\n";
  for (const char* expected :
       {"step 20000.0 ms; recover 4500.0 ms, 66.7 % of it beside a gradient; memory at most 3.9 "
        "KiB",
        "training\n", "lane 0\n", "lane 2\n", "communication\n", "tape\n", "KiB"}) {
    EXPECT_NE(words.find(expected), std::string::npos) << expected << " in\n" << words;
  }
}

// Widths of letters are guessed, generously.
TEST(StepSvg, LegendsSayEachWordOnceAndStayInsideThePage) {
  StepTrace step = small_step();
  step.tags = {"parameters", "gradients", "optimizer", "streams", "tape", "other"};
  for (MemorySample& sample : step.samples) sample.bytes.assign(6, 1000);
  const XmlElement svg = read_xml(step_svg(step));
  std::map<std::string, int> words;
  for (const XmlElement* word : svg.all("text", "word")) {
    ++words[word->text];
    if (word->attributes.at("text-anchor") != "start") continue;
    EXPECT_LE(word->number("x") + 7.3 * static_cast<double>(word->text.size()), svg.number("width"))
        << word->text;
  }
  EXPECT_EQ(words["optimizer"], 1);
  EXPECT_EQ(words["optimizer step"], 1);
  EXPECT_EQ(words["other"], 1);
}

TEST(StepSvg, IsNeverWiderThanTheWindow) {
  const XmlElement svg = read_xml(step_svg(small_step()));
  EXPECT_EQ(svg.attributes.at("style"), "max-width: 100%; height: auto");
  EXPECT_NE(svg.attributes.at("viewBox").find("0 0 1376"), std::string::npos);
}

TEST(StepSvg, NoPeakIsLostAmongManySamples) {
  StepTrace step = small_step();
  step.samples.clear();
  for (int i = 0; i < 50000; ++i) {
    step.samples.push_back({.time = testing::kStart + 20.0 * i / 50000,
                            .bytes = {1000, i == 33333 ? 7000 : 0},
                            .total = 1000});
  }
  const auto areas = read_xml(step_svg(step));
  const auto tape = corners(*areas.all("polygon").at(1));
  EXPECT_LT(tape.size(), 2 * 1300U);
  const auto parameters = corners(*areas.all("polygon").at(0));
  double highest = parameters[0].second;
  for (const auto& [x, y] : tape) highest = std::min(highest, y);
  const double base = parameters.back().second;
  EXPECT_NEAR((base - highest) / (base - parameters[0].second), 8.0, 1e-2);
}

TEST(StepSvg, AnEmptyStepIsADrawing) {
  EXPECT_TRUE(read_xml(step_svg(StepTrace{})).all("polygon").empty());
}

}  // namespace
}  // namespace pareprop
