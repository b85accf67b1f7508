#include "pareprop/sweep/report_page.h"

#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "tests/draw/xml_reader.h"
#include "tests/sweep/sample_results.h"

namespace pareprop::sweep {
namespace {

using pareprop::testing::read_xml;
using pareprop::testing::XmlElement;
using sweep::Results;
using testing::rows_of;
using testing::sample_results;

const XmlElement& figure(const XmlElement& page, const std::string& id) {
  for (const XmlElement* one : page.all("figure")) {
    const auto found = one->attributes.find("id");
    if (found != one->attributes.end() && found->second == id) return *one;
  }
  throw std::runtime_error("no figure " + id);
}

std::string all_text(const XmlElement& element) {
  std::string out = element.name == "style" ? "" : element.text;
  for (const XmlElement& child : element.children) out.append("|").append(all_text(child));
  return out;
}

TEST(ReportPage, HasEveryPlotOnce) {
  const XmlElement page = read_xml(report_page(sample_results()));
  std::set<std::string> ids;
  for (const XmlElement* one : page.all("figure")) {
    EXPECT_TRUE(ids.insert(one->attributes.at("id")).second) << one->attributes.at("id");
    EXPECT_EQ(one->all("svg", "plot").size(), 1U);
    EXPECT_EQ(all_text(*one).find("no data"), std::string::npos);
  }
  std::set<std::string> expected{"depth-vit-cifar-batch-4-fp32-2-threads"};
  for (const std::string model : {"vit-cifar", "swin-cifar", "mvit-cifar", "roberta-base"}) {
    expected.insert("batch-" + model + "-fp32-2-threads");
    expected.insert("gain-" + model.substr(0, model.find('-')));
    for (const char* kind : {"memory-", "phase-", "busy-"}) {
      expected.insert(kind + model + "-batch-8-fp32-2-threads");
    }
  }
  EXPECT_EQ(ids, expected);
}

TEST(ReportPage, ModesHaveTheSameColourInAllPlotsOfLines) {
  Results results = sample_results();
  for (auto& row : results.rows) {
    if (row.family == "swin" && row.mode == "stored") row.fits = false;
  }
  const XmlElement page = read_xml(report_page(results));
  for (const char* id :
       {"batch-vit-cifar-fp32-2-threads", "batch-swin-cifar-fp32-2-threads",
        "depth-vit-cifar-batch-4-fp32-2-threads", "memory-swin-cifar-batch-8-fp32-2-threads"}) {
    for (const XmlElement* series : figure(page, id).all("g")) {
      const std::string name = series->children.at(0).text;
      if (name == "pareprop") {
        EXPECT_TRUE(series->has_class("c3")) << id;
      }
    }
  }
}

TEST(ReportPage, FrontierJoinsWhatNothingBeats) {
  const XmlElement page = read_xml(report_page(sample_results()));
  const auto series = figure(page, "memory-swin-cifar-batch-8-fp32-2-threads").all("g");
  ASSERT_EQ(series.size(), 6U);
  EXPECT_EQ(series[5]->children.at(0).text, "frontier");
  EXPECT_EQ(series[5]->all("path", "dashed").size(), 1U);
  // reprop, pareprop, auto and stored, each faster with more memory; checkpoint is beaten.
  EXPECT_EQ(series[5]->all("circle").size(), 4U);
  const auto budgets = figure(page, "memory-vit-cifar-batch-8-fp32-2-threads").all("g");
  EXPECT_EQ(budgets[4]->all("circle", "dot").size(), 4U);  // auto, and three budgets
  for (const XmlElement* one : budgets) EXPECT_TRUE(one->all("path").empty() || one == budgets[5]);
}

TEST(ReportPage, GainAndPhasesAreRight) {
  const XmlElement page = read_xml(report_page(sample_results()));
  const auto bars = figure(page, "gain-swin").all("rect", "bar");
  EXPECT_EQ(bars.size(), 4U);
  EXPECT_NE(all_text(figure(page, "gain-swin")).find("swin_cifar b2: 1.20\u00D7"),
            std::string::npos);
  EXPECT_EQ(figure(page, "busy-vit-cifar-batch-8-fp32-2-threads").all("text", "title")[0]->text,
            "Lanes: vit_cifar, batch 8, fp32");
  const std::string phases = all_text(figure(page, "phase-vit-cifar-batch-8-fp32-2-threads"));
  EXPECT_NE(phases.find("stored, forward: 27.0 ms"), std::string::npos) << phases;
  EXPECT_NE(phases.find("auto 30.0 MiB"), std::string::npos);
  EXPECT_NE(all_text(page).find("Activations: stored over pareprop|10.00\u00D7"), std::string::npos)
      << all_text(page).substr(0, 900);
}

TEST(ReportPage, FiguresAreMediansWithTheirRange) {
  Results results{.machine = {"c", 1, "t"}, .rows = {}};
  const double gains[] = {1.5, 0.5, 1.25, 1.0};
  for (int i = 0; i < 4; ++i) {
    auto rows = rows_of("vit_tiny", 1 << i);
    for (auto& row : rows) row.samples_per_s = row.mode == "pareprop" ? gains[i] : 1.0;
    testing::add(results.rows, rows);
  }
  const std::string words = all_text(read_xml(report_page(results)));
  EXPECT_NE(words.find("speed over reprop|1.12\u00D7|median of 4 cases, 0.50\u00D7 to 1.50\u00D7"),
            std::string::npos)
      << words.substr(0, 900);
  EXPECT_EQ(words.find("Best"), std::string::npos);
}

TEST(ReportPage, TableHasEveryRowAlsoThoseThatWereNotTimed) {
  const Results results = sample_results();
  const XmlElement page = read_xml(report_page(results));
  const auto rows = page.all("table", "rows").at(0)->all("tbody").at(0)->all("tr");
  ASSERT_EQ(rows.size(), results.rows.size());
  for (const XmlElement* row : rows) {
    EXPECT_TRUE(row->children.size() == 13U || row->children.size() == 3U);
  }
  EXPECT_EQ(rows[rows.size() - 2]->children[2].text, "does not fit in memory");
  EXPECT_NE(rows.back()->children[2].text.find("above the tolerance"), std::string::npos);
  EXPECT_NE(all_text(page).find("A CPU <with> & signs, 2 threads, torch 2.13.0"),
            std::string::npos);
}

TEST(ReportPage, OfOneRowSaysWhatIsMissing) {
  Results results{.machine = {"c", 1, "t"}, .rows = {rows_of("vit_tiny", 4).front()}};
  const XmlElement page = read_xml(report_page(results));
  const std::string words = all_text(page);
  EXPECT_NE(words.find("No network ran with more than one batch size."), std::string::npos);
  EXPECT_NE(words.find("No network ran with more than one depth."), std::string::npos);
  EXPECT_NE(words.find("No case ran in both pareprop and reprop."), std::string::npos);
  EXPECT_EQ(page.all("figure").size(), 3U);
  results.rows[0].fits = false;
  EXPECT_EQ(read_xml(report_page(results)).all("figure").size(), 0U);
}

TEST(ReportPage, NeedsNothingFromOutside) {
  const std::string html = report_page(sample_results());
  for (const char* outside : {"src=", "href=", "@import", "url(", "<script", "<link"}) {
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  }
}

TEST(ReportPage, MergesFilesOfOneMachine) {
  Results first{.machine = {"c", 1, "t"}, .rows = rows_of("vit_tiny", 4)};
  Results second{.machine = {"c", 1, "t"}, .rows = rows_of("vit_tiny", 8), .torn = true};
  second.rows.push_back(rows_of("vit_tiny", 4).front());
  second.rows.back().step_ms = 77.0;
  const Results all = merged({first, second});
  EXPECT_EQ(all.rows.size(), 10U);
  EXPECT_EQ(all.rows[0].step_ms, 77.0);
  EXPECT_TRUE(all.torn);
  EXPECT_NE(report_page(all).find("class=\"note\""), std::string::npos);
  second.machine.threads = 2;
  EXPECT_THROW(merged({first, second}), std::invalid_argument);
  EXPECT_THROW(merged({}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::sweep
