#include "pareprop/data/text/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace pareprop::data {
namespace {

TEST(ByteAlphabet, WritesKnownBytes) {
  EXPECT_EQ(in_byte_alphabet(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(in_byte_alphabet(std::string(1, '\0')), "\u0100");
  EXPECT_EQ(in_byte_alphabet("\x7f\xad\xa0"), "\u0121\u0143\u0142");
  EXPECT_EQ(in_byte_alphabet("\u00e9"), "\u00c3\u00a9");
}

TEST(ByteAlphabet, HasACharacterForEveryByteAndBack) {
  std::set<std::string> characters;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(from_byte_alphabet(in_byte_alphabet(one)), one) << byte;
    characters.insert(in_byte_alphabet(one));
    all += one;
  }
  EXPECT_EQ(characters.size(), 256U);
  EXPECT_EQ(from_byte_alphabet(in_byte_alphabet(all)), all);
}

TEST(ByteAlphabet, KnowsWhatIsNotOfIt) {
  for (const char* text : {" ", "a b", "\n", "\u00ad", "\u0144", "\u65e5", "\xff", "a\xc3"}) {
    EXPECT_EQ(from_byte_alphabet(text), std::nullopt) << text;
  }
  EXPECT_EQ(from_byte_alphabet(""), "");
}

}  // namespace
}  // namespace pareprop::data
