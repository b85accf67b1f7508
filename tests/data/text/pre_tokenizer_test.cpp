#include "pareprop/data/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pareprop::data {
namespace {

using Words = std::vector<std::string>;

Words words(std::string_view text) {
  Words result;
  for_each_word(text, [&](std::string_view word) { result.emplace_back(word); });
  return result;
}

TEST(Words, TakeTheSpaceBeforeThem) {
  EXPECT_EQ(words("Hello there, world 42!"), (Words{"Hello", " there", ",", " world", " 42", "!"}));
  EXPECT_EQ(words(" a"), (Words{" a"}));
  EXPECT_EQ(words("a1b"), (Words{"a", "1", "b"}));
  EXPECT_EQ(words(""), Words{});
}

TEST(Words, SplitContractionsOffInSmallLettersOnly) {
  EXPECT_EQ(words("it's we'll I'd 're 'S"),
            (Words{"it", "'s", " we", "'ll", " I", "'d", " '", "re", " '", "S"}));
  EXPECT_EQ(words("!'s"), (Words{"!'", "s"}));
  EXPECT_EQ(words("'"), (Words{"'"}));
  EXPECT_EQ(words("'lx"), (Words{"'", "lx"}));
}

TEST(Words, LeaveTheLastWhiteSpaceToWhatFollows) {
  EXPECT_EQ(words("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(words("a\n\n\nb"), (Words{"a", "\n\n", "\n", "b"}));
  EXPECT_EQ(words("a\nb"), (Words{"a", "\n", "b"}));
  EXPECT_EQ(words("a \n"), (Words{"a", " \n"}));
  EXPECT_EQ(words("a  "), (Words{"a", "  "}));
  EXPECT_EQ(words("a\u00a0\u3000 b"), (Words{"a", "\u00a0\u3000", " b"}));
  EXPECT_EQ(words("a\u00a0b"), (Words{"a", "\u00a0", "b"}));
}

TEST(Words, GoByUnicodeCategories) {
  EXPECT_EQ(words("\u65e5\u672c\u0663\u2177 \U0001f44d\U0001f3fd"),
            (Words{"\u65e5\u672c", "\u0663\u2177", " \U0001f44d\U0001f3fd"}));
  EXPECT_EQ(words("e\u0301a"), (Words{"e", "\u0301", "a"}));
}

TEST(Words, HaveAnEndInBytesThatAreNotUtf8) {
  for (const std::string text : {"\xff\xff", "a\xc3", " \x80 ", "'\xe2\x82"}) {
    std::string joined;
    for (const std::string& word : words(text)) joined += word;
    EXPECT_EQ(joined, text);
  }
}

}  // namespace
}  // namespace pareprop::data
