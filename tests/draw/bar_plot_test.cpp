#include "pareprop/draw/bar_plot.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/draw/xml_reader.h"

namespace pareprop::draw {
namespace {

using pareprop::testing::read_xml;
using pareprop::testing::XmlElement;

std::string words_of(const XmlElement& root) {
  std::string all = "|";
  for (const XmlElement* text : root.all("text")) all += text->text + "|";
  return all;
}

TEST(BarPlot, LengthsAreInProportionAndValuesWritten) {
  const XmlElement root =
      read_xml(svg(BarPlot{.title = "Memory",
                           .bars = {{"tape", {10.0}}, {"streams", {5.0}}, {"other", {0.0}}},
                           .value_text = [](double value) {
                             return "<" + std::to_string(static_cast<int>(value)) + ">";
                           }}));
  const auto bars = root.all("rect", "bar");
  ASSERT_EQ(bars.size(), 3U);
  EXPECT_NEAR(bars[0]->number("width"), 2 * bars[1]->number("width"), 0.02);
  EXPECT_EQ(bars[2]->number("width"), 0.0);
  EXPECT_LE(bars[0]->number("x") + bars[0]->number("width"), root.number("width"));
  EXPECT_LE(bars[2]->number("y") + bars[2]->number("height"), root.number("height"));
  EXPECT_EQ(words_of(root), "|Memory|tape|<10>|streams|<5>|other|<0>|");
}

TEST(BarPlot, PartsFollowEachOtherAndAreNamed) {
  const XmlElement root = read_xml(
      svg(BarPlot{.title = "t", .parts = {"kept", "made"}, .bars = {{"a", {1, 3}}, {"b", {2}}}}));
  const auto first = root.all("g").at(0)->all("rect", "bar");
  ASSERT_EQ(first.size(), 2U);
  EXPECT_NEAR(first[0]->number("x") + first[0]->number("width"), first[1]->number("x"), 0.02);
  EXPECT_NEAR(3 * first[0]->number("width"), first[1]->number("width"), 0.04);
  EXPECT_TRUE(first[0]->has_class("c0"));
  EXPECT_TRUE(first[1]->has_class("c1"));
  EXPECT_EQ(first[1]->children.at(0).text, "a, made: 3");
  EXPECT_EQ(words_of(root), "|t|kept|made|a|4|b|2|");
}

TEST(BarPlot, ValuesThatHaveNoLength) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  const XmlElement root =
      read_xml(svg(BarPlot{.title = "t", .bars = {{"a", {nan, 2}}, {"b", {inf}}, {"c", {-1, 1}}}}));
  for (const XmlElement* bar : root.all("rect", "bar")) {
    EXPECT_GE(bar->number("width"), 0.0);
    EXPECT_LE(bar->number("x") + bar->number("width"), root.number("width"));
  }
  EXPECT_EQ(words_of(root), "|t|a|2|b|0|c|1|");
}

TEST(BarPlot, EmptyHugeAndSmall) {
  EXPECT_NE(svg(BarPlot{.title = "t"}).find("no data"), std::string::npos);
  EXPECT_NO_THROW(read_xml(svg(BarPlot{.title = "t", .bars = {{"a", {}}}})));
  for (const double value : {0.0, 1e-300, 1e300, 5e-324}) {
    const XmlElement root = read_xml(svg(BarPlot{.title = "t", .bars = {{"a", {value, value}}}}));
    for (const XmlElement* bar : root.all("rect", "bar")) {
      EXPECT_LE(bar->number("x") + bar->number("width"), root.number("width"));
    }
  }
}

TEST(BarPlot, WordsAreEscapedAndLongOnesCut) {
  const std::string name = "<&\"" + std::string(300, 'x');
  const XmlElement root =
      read_xml(svg(BarPlot{.title = name, .parts = {name}, .bars = {{name, {1}}, {"b", {2}}}}));
  EXPECT_EQ(root.all("g").at(0)->children.at(0).text, name + ": 1");
  for (const XmlElement* text : root.all("text")) EXPECT_LT(text->text.size(), 100U);
}

}  // namespace
}  // namespace pareprop::draw
