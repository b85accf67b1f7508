#include "pareprop/text/utf8.h"

#include <gtest/gtest.h>

namespace pareprop::text {
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
    EXPECT_EQ(first_ill_formed("ok" + std::string(text)), 2U) << std::string(text);
  }
  EXPECT_EQ(first_ill_formed(""), 0U);
}

}  // namespace
}  // namespace pareprop::text
