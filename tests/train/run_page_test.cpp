#include "pareprop/train/run_page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/draw/xml_reader.h"

namespace pareprop::train {
namespace {

using pareprop::testing::read_xml;
using pareprop::testing::XmlElement;

TrainResult example() {
  TrainResult result{.step = 40, .all_steps = 40, .last_loss = 0.25, .seconds = 200.0};
  result.evaluation = {.loss = 0.3125, .accuracy = 0.973, .rows = 360};
  for (int i = 1; i <= 40; ++i) {
    result.steps.push_back({.step = i,
                            .loss = 2.0 / i,
                            .accuracy = 1.0 - 1.0 / i,
                            .learning_rate = 1e-3,
                            .samples_per_s = i == 1 ? 1.0 : 100.0 + i,
                            .peak_bytes = std::int64_t{300} << 20});
  }
  result.evaluations = {{.step = 20, .loss = 0.5, .accuracy = 0.9},
                        {.step = 40, .loss = 0.3125, .accuracy = 0.973}};
  result.memory.peak = {1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20, 6 << 20};
  result.memory.total_peak = 18 << 20;
  result.stacks = {plan_of(Mode::reprop, 4), plan_of(Mode::pareprop, 2)};
  result.stacks[0].policies = {Policy::reverse, Policy::reverse, Policy::store, Policy::products};
  return result;
}

std::string all_text(const XmlElement& element) {
  std::string out = element.name == "style" ? "" : element.text;
  for (const XmlElement& child : element.children) out.append("|").append(all_text(child));
  return out;
}

bool says(const XmlElement& page, const std::string& words) {
  return all_text(page).find(words) != std::string::npos;
}

TEST(RunPage, SaysWhatWasTrainedAndHowItEnded) {
  const XmlElement page = read_xml(run_page({.mode = "reprop"}, example()));
  EXPECT_EQ(page.all("h1").at(0)->text, "vit_tiny on digits");
  EXPECT_TRUE(says(page, "mode reprop"));
  EXPECT_TRUE(says(page, "Finished: 40 of 40 steps."));
  EXPECT_TRUE(says(page, "97.3 %"));
  EXPECT_TRUE(says(page, "0.3125"));
  EXPECT_TRUE(says(page, "3 min 20 s"));
  EXPECT_TRUE(says(page, "120.5"));  // the median: one slow step does not pull it down
  EXPECT_TRUE(says(page, "18.0 MiB"));
  TrainResult result = example();
  for (const TrainEnd end :
       {TrainEnd::stopped_early, TrainEnd::stopped_by_user, TrainEnd::out_of_time}) {
    result.end = end;
    EXPECT_FALSE(says(read_xml(run_page({}, result)), "Finished"));
  }
}

TEST(RunPage, HasAllPlotsWithTheirSeries) {
  const XmlElement page = read_xml(run_page({}, example()));
  std::vector<std::string> titles;
  for (const XmlElement* plot : page.all("svg", "plot")) {
    titles.push_back(plot->all("text", "title").at(0)->text);
  }
  EXPECT_EQ(titles,
            (std::vector<std::string>{"Loss", "Accuracy, %", "Learning rate", "Samples a second",
                                      "Peak memory, MiB", "Memory by use, the peak of each"}));
  for (const std::size_t plot : {0, 1}) {
    const auto groups = page.all("svg", "plot").at(plot)->all("g");
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0]->children.at(0).text, "training");
    EXPECT_EQ(groups[0]->all("circle").size(), 40U);
    EXPECT_EQ(groups[1]->children.at(0).text, "validation");
    EXPECT_EQ(groups[1]->all("circle", "dot").size(), 2U);
  }
  EXPECT_TRUE(says(page, "Peak memory, MiB: 300 at step 40"));
  EXPECT_EQ(page.all("svg", "plot").at(5)->all("rect", "bar").size(), memory::kTags);
  EXPECT_TRUE(says(page, "tape: 5.0 MiB"));
}

TEST(RunPage, TellsARunThatWaitedForData) {
  TrainResult result = example();
  result.waited = 0.04;
  EXPECT_EQ(read_xml(run_page({}, result)).all("p", "note").size(), 0U);
  result.waited = 0.12;
  const XmlElement page = read_xml(run_page({}, result));
  ASSERT_EQ(page.all("p", "note").size(), 1U);
  EXPECT_TRUE(says(page, "waited for data 12.0 % of the time: preparing data was the bottleneck"));
}

TEST(RunPage, ShowsThePolicyOfEveryBlock) {
  const XmlElement page = read_xml(run_page({}, example()));
  const auto rows = page.all("div", "chips");
  ASSERT_EQ(rows.size(), 2U);
  ASSERT_EQ(rows[0]->children.size(), 4U);
  EXPECT_EQ(rows[0]->children[0].attributes.at("title"), "block 0: reverse");
  EXPECT_TRUE(rows[0]->children[2].has_class("store"));
  EXPECT_TRUE(rows[0]->children[3].has_class("products"));
  EXPECT_TRUE(says(page, "1 store, 1 products, 2 reverse"));
  EXPECT_TRUE(says(page, "all reverse"));  // of the second, which has its mode's policies
  TrainResult plain = example();
  plain.stacks.clear();
  EXPECT_TRUE(says(read_xml(run_page({.plain = true, .mode = "stored"}, plain)),
                   "without reversible stacks, trained in mode stored"));
}

TEST(RunPage, ConfigurationIsWholeAndShowsWhatWasChanged) {
  const TrainConfig config{.data = "synthetic", .batch = 7};
  const XmlElement page = read_xml(run_page(config, example()));
  EXPECT_EQ(page.all("td", "key").size(), fields(config).size());
  std::vector<std::string> changed;
  for (const XmlElement* bold : page.all("b")) changed.push_back(bold->text);
  EXPECT_EQ(changed, (std::vector<std::string>{"synthetic", "7"}));
}

TEST(RunPage, EscapesNamesAndListsImagesLeftOut) {
  TrainResult result = example();
  result.skipped = {"a/<b>&\".png: not an image", "bad \xff\xc3 name\x01"};
  const XmlElement page =
      read_xml(run_page({.model = "</h1><script>", .data = "folder:\"<x>\""}, result));
  EXPECT_EQ(page.all("h1").at(0)->text, "</h1><script> on folder:\"<x>\"");
  EXPECT_EQ(page.all("script").size(), 0U);
  const auto files = page.all("ul", "files").at(0)->all("li");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files[0]->text, result.skipped[0]);
  EXPECT_EQ(files[1]->text, "bad \uFFFD\uFFFD name ");
  result.skipped.assign(1000, "x");
  EXPECT_TRUE(says(read_xml(run_page({}, result)), "and 900 more"));
}

TEST(RunPage, NothingHappened) {
  const std::string page = run_page({}, {});
  EXPECT_TRUE(says(read_xml(page), "not evaluated"));
  EXPECT_EQ(page.find("Images left out"), std::string::npos);
  EXPECT_EQ(read_xml(page).all("svg", "plot").size(), 6U);
}

TEST(RunPage, ValuesThatAreNotFinite) {
  TrainResult result = example();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  result.last_loss = result.waited = result.seconds = nan;
  result.evaluation.loss = result.evaluation.accuracy = nan;
  for (StepRecord& record : result.steps) {
    record.loss = record.samples_per_s = nan;
    record.learning_rate = std::numeric_limits<double>::infinity();
  }
  EXPECT_NO_THROW(read_xml(run_page({}, result)));
}

// Nothing is loaded from elsewhere, and nothing runs.
TEST(RunPage, StandsAlone) {
  const std::string page = run_page({}, example());
  for (const char* piece : {"<script", "<link", "<img", "@import", "url(", "href=", "src="}) {
    EXPECT_EQ(page.find(piece), std::string::npos) << piece;
  }
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0U);
}

}  // namespace
}  // namespace pareprop::train
