#include "pareprop/io/utf8.h"

#include <gtest/gtest.h>

namespace pareprop::io {
namespace {

// UTF-8 of a code point, also of those that must not be encoded.
std::string encoded(unsigned code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

TEST(Utf8, TakesEveryCodePointButSurrogates) {
  for (unsigned code = 0; code <= 0x1fffff; ++code) {
    const std::string text = "a" + encoded(code) + "b";
    const bool well = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    ASSERT_EQ(first_ill_formed(text), well ? text.size() : 1) << code;
  }
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
  const std::string cut = in_quotes(std::string(1000000, 'x'));
  EXPECT_LT(cut.size(), 120U);
  EXPECT_EQ(cut.substr(cut.size() - 5), "x...'");
}

}  // namespace
}  // namespace pareprop::io
