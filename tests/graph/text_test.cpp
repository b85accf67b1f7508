#include "pareprop/graph/text.h"

#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pareprop/graph/nearest.h"

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

TEST(Text, PrintableEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(text::printable("plain ä € 日本 \U0001F600"), "plain ä € 日本 \U0001F600");
  EXPECT_EQ(text::printable("\x1b[2J\x1b]0;title\a\r\b\x7f"),
            "\\x1b[2J\\x1b]0;title\\x07\\x0d\\x08\\x7f");
  EXPECT_EQ(text::printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(text::printable("\u009b31m"), "\\u009b31m");
  EXPECT_EQ(text::printable("exe.\u202egpj \u2066x\u2069 \u200e\u061c\ufeff \u2028"),
            "exe.\\u202egpj \\u2066x\\u2069 \\u200e\\u061c\\ufeff \\u2028");
  EXPECT_EQ(text::printable("\U000e0041"), "\\U000e0041");
}

TEST(Text, PrintableEscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(text::printable("caf\xe9 \xc3"), "caf\\xe9 \\xc3");
  EXPECT_EQ(text::printable("\x9b"
                            "31m \xff"),
            "\\x9b31m \\xff");
  EXPECT_EQ(text::printable("\xc0\x9b"), "\\xc0\\x9b") << "an overlong form";
  EXPECT_EQ(text::printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b") << "an overlong form";
  EXPECT_EQ(text::printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(text::printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond the last";
}

TEST(Text, PrintableKeepsLinesWhereAsked) {
  EXPECT_EQ(text::printable("a\n\tb\r\n", text::Lines::kept), "a\n\tb\\x0d\n");
  EXPECT_EQ(text::printable("a\n\tb"), "a\\n\\tb");
}

TEST(Text, ShortLabels) {
  EXPECT_EQ(text::short_label({.kind = TaskKind::recover, .branch = 6, .needs = {}}), "R F3");
  EXPECT_EQ(text::short_label({.kind = TaskKind::gradient, .branch = 1, .needs = {}}), "B G0");
  EXPECT_EQ(text::short_label({.kind = TaskKind::weight_gradient, .branch = 23, .needs = {}}),
            "W G11");
  EXPECT_EQ(text::short_label({.kind = TaskKind::recover, .branch = 1, .needs = {}, .stack = 1}),
            "R G0'");
}

TEST(Text, TheNearestOfSomeWords) {
  const std::vector<std::string> known = {"--mode", "--model", "--batch", "--learning-rate"};
  EXPECT_EQ(text::nearest("--modle", known), "--model");
  EXPECT_EQ(text::nearest("--mod", known), "--mode");
  EXPECT_EQ(text::nearest("--bacth", known), "--batch");
  EXPECT_EQ(text::nearest("--learnin_rate", known), "--learning-rate");
  EXPECT_EQ(text::nearest("x", known), "");
  EXPECT_EQ(text::nearest("--output-dir", {"--image-size"}), "") << "more than a third differs";
  EXPECT_EQ(text::nearest(std::string(1000, 'x'), known), "");
}

}  // namespace
}  // namespace pareprop
