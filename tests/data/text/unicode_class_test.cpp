#include "pareprop/data/text/unicode_class.h"

#include <gtest/gtest.h>

namespace pareprop::data {
namespace {

using enum UnicodeClass;

TEST(UnicodeClasses, OfKnownCharacters) {
  for (const char32_t code : {U'a', U'Z', U'\u00aa', U'\u00e9', U'\u0416', U'\u65e5', U'\u02b0',
                              U'\U0001d400', U'\U00020000'}) {
    EXPECT_EQ(unicode_class(code), letter) << static_cast<unsigned>(code);
  }
  for (const char32_t code : {U'0', U'9', U'\u00b2', U'\u00bd', U'\u0663', U'\u2177', U'\u3007'}) {
    EXPECT_EQ(unicode_class(code), number) << static_cast<unsigned>(code);
  }
  for (const char32_t code : {U' ', U'\t', U'\n', U'\v', U'\f', U'\r', U'\u00a0', U'\u2003',
                              U'\u2028', U'\u2029', U'\u202f', U'\u3000', char32_t{0x85}}) {
    EXPECT_EQ(unicode_class(code), space) << static_cast<unsigned>(code);
  }
  for (const char32_t code :
       {U'_', U'\'', U'!', char32_t{0}, char32_t{0x1c}, char32_t{0x7f}, U'\u0301', U'\u200b',
        U'\ufeff', U'\U0001f44d', char32_t{0x10ffff}, char32_t{0xffffffff}}) {
    EXPECT_EQ(unicode_class(code), other) << static_cast<unsigned>(code);
  }
}

// Counted with Python's unicodedata 14.0.
TEST(UnicodeClasses, HaveTheirNumberOfCharacters) {
  int count[4] = {};
  for (char32_t code = 0; code <= 0x10ffff; ++code) ++count[static_cast<int>(unicode_class(code))];
  EXPECT_EQ(count[static_cast<int>(letter)], 131756);
  EXPECT_EQ(count[static_cast<int>(number)], 1791);
  EXPECT_EQ(count[static_cast<int>(space)], 25);
}

}  // namespace
}  // namespace pareprop::data
