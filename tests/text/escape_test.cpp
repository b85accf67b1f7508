#include "pareprop/text/escape.h"

#include <gtest/gtest.h>

#include <string>

namespace pareprop {
namespace {

TEST(Text, XmlEscapes) {
  EXPECT_EQ(text::xml("<a href=\"x\">&\x01</a>"), "&lt;a href=&quot;x&quot;&gt;&amp; &lt;/a&gt;");
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

TEST(Text, QuotesForMessages) {
  EXPECT_EQ(text::in_quotes("block.0/\xc3\xa9"), "'block.0/\xc3\xa9'");
  EXPECT_EQ(text::in_quotes("\x1b[31m\n\xff"), R"('\x1b[31m\n\xff')");
  const std::string cut = text::in_quotes(std::string(1000000, 'x'));
  EXPECT_LT(cut.size(), 120U);
  EXPECT_EQ(cut.substr(cut.size() - 5), "x...'");
}

}  // namespace
}  // namespace pareprop
