#include "pareprop/graph/text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <nlohmann/json.hpp>

namespace pareprop {
namespace {

TEST(Text, NumbersInEveryLocale) {
  std::setlocale(LC_ALL, "de_DE.UTF-8");  // where the system has it
  EXPECT_EQ(text::fixed(1.5, 2), "1.50");
  std::setlocale(LC_ALL, "C");
  EXPECT_EQ(text::fixed(0.0, 0), "0");
  EXPECT_EQ(text::fixed(-2.345, 1), "-2.3");
  EXPECT_EQ(text::fixed(std::numeric_limits<double>::max(), 3).size(), 309U + 4U);
}

TEST(Text, JsonReadsBack) {
  const std::string hard = "a\"b\\c\n\t\x01/\x1f ä €";
  EXPECT_EQ(nlohmann::json::parse(text::json(hard)).get<std::string>(), hard);
}

TEST(Text, DotAndXmlEscape) {
  EXPECT_EQ(text::dot("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\n\"");
  EXPECT_EQ(text::xml("<a href=\"x\">&\x01</a>"), "&lt;a href=&quot;x&quot;&gt;&amp; &lt;/a&gt;");
}

TEST(Text, TickStepsAreOneTwoOrFive) {
  EXPECT_DOUBLE_EQ(text::tick_step(10.0, 10), 1.0);
  EXPECT_DOUBLE_EQ(text::tick_step(11.0, 10), 2.0);
  EXPECT_DOUBLE_EQ(text::tick_step(21.0, 10), 5.0);
  EXPECT_DOUBLE_EQ(text::tick_step(51.0, 10), 10.0);
  EXPECT_DOUBLE_EQ(text::tick_step(0.03, 10), 0.005);
  for (double length = 1e-6; length < 1e9; length *= 1.37) {
    for (int ticks = 1; ticks < 15; ++ticks) {
      const double step = text::tick_step(length, ticks);
      EXPECT_LE(length / step, ticks * (1 + 1e-6));
      EXPECT_GT(length / step, ticks / 2.6);
    }
  }
  EXPECT_EQ(text::tick_decimals(0.005), 3);
  EXPECT_EQ(text::tick_decimals(0.1), 1);
  EXPECT_EQ(text::tick_decimals(1.0), 0);
  EXPECT_EQ(text::tick_decimals(500.0), 0);
}

TEST(Text, ShortLabels) {
  EXPECT_EQ(text::short_label({.kind = TaskKind::recover, .branch = 6, .needs = {}}), "R F3");
  EXPECT_EQ(text::short_label({.kind = TaskKind::gradient, .branch = 1, .needs = {}}), "B G0");
  EXPECT_EQ(text::short_label({.kind = TaskKind::weight_gradient, .branch = 23, .needs = {}}),
            "W G11");
  EXPECT_EQ(text::short_label({.kind = TaskKind::recover, .branch = 1, .needs = {}, .stack = 1}),
            "R G0'");
}

}  // namespace
}  // namespace pareprop
