#include "pareprop/io/utf8.h"

#include <gtest/gtest.h>

namespace pareprop::io {
namespace {

// to_utf8() makes ill-formed text of what must not be encoded.
TEST(Utf8, TakesEveryCodePointButSurrogates) {
  for (unsigned code = 0; code <= 0x1fffff; ++code) {
    const std::string text = "a" + to_utf8(code) + "b";
    const bool well = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    ASSERT_EQ(first_ill_formed(text), well ? text.size() : 1) << code;
    const Utf8Character character = character_at(text, 1);
    ASSERT_EQ(character.bytes, well ? text.size() - 2 : 0) << code;
    ASSERT_EQ(character.code, well ? code : 0) << code;
  }
}

TEST(Utf8, EncodesKnownCharacters) {
  EXPECT_EQ(to_utf8('a'), "a");
  EXPECT_EQ(to_utf8(0xe9), "\xc3\xa9");
  EXPECT_EQ(to_utf8(0x20ac), "\xe2\x82\xac");
  EXPECT_EQ(to_utf8(0x1f600), "\xf0\x9f\x98\x80");
}

TEST(Utf8, RefusesOverlongCutAndStrayBytes) {
  for (const char* text : {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
                           "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80", "\xff",
                           "\xfe", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xe2\x28\xa1"}) {
    EXPECT_EQ(first_ill_formed("ok" + std::string(text)), 2U) << in_quotes(text);
  }
  EXPECT_EQ(first_ill_formed(""), 0U);
}

TEST(Utf8, QuotesForMessages) {
  EXPECT_EQ(in_quotes("block.0/\xc3\xa9"), "'block.0/\xc3\xa9'");
  EXPECT_EQ(in_quotes("\x1b[31m\n\xff"), R"('\x1b[31m\x0a\xff')");
  // C1 controls and marks of direction are UTF-8, and terminals obey them.
  EXPECT_EQ(in_quotes("a\xc2\x9b"
                      "2J\xe2\x80\xae"),
            R"('a\xc2\x9b2J\xe2\x80\xae')");
  EXPECT_EQ(printable("\r" + std::string(300, 'x')), "\\x0d" + std::string(300, 'x'));
  const std::string cut = in_quotes(std::string(1000000, 'x'));
  EXPECT_LT(cut.size(), 120U);
  EXPECT_EQ(cut.substr(cut.size() - 5), "x...'");
}

}  // namespace
}  // namespace pareprop::io
