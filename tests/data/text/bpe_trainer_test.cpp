#include "pareprop/data/text/bpe_trainer.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

BpeTables train(std::string_view text, std::int64_t vocabulary, std::int64_t minimum = 1) {
  return train_bpe(std::vector{text}, {.vocabulary = vocabulary, .min_frequency = minimum});
}

TEST(BpeTrainer, NumbersSpecialTokensAndBytesFirst) {
  const BpeTables tables = train("ab", 262);
  ASSERT_EQ(tables.tokens.size(), 262U);
  EXPECT_EQ((std::vector(tables.tokens.begin(), tables.tokens.begin() + 6)),
            (std::vector<std::string>{"<s>", "<pad>", "</s>", "<unk>", "<mask>", "!"}));
  EXPECT_EQ(tables.tokens[260], "\u0143");
  EXPECT_EQ(tables.tokens[261], "ab");
  EXPECT_EQ(tables.special.size(), 5U);
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirstAndTheSmallerOfEqualOnes) {
  // "bc" 3 times, "ab" twice, then "ab" + "c" is what is left of "abc".
  EXPECT_EQ(train("abc abc bc", 1000).merges,
            (Merges{{"b", "c"}, {"a", "bc"}, {"\u0120", "bc"}, {"\u0120", "abc"}}));
  EXPECT_EQ(train("zy ab", 262).merges, (Merges{{"a", "b"}}));
}

TEST(BpeTrainer, StopsWhenFullOrTooRare) {
  EXPECT_EQ(train("abab", 261).merges, Merges{});
  EXPECT_EQ(train("abab", 262).merges, (Merges{{"a", "b"}}));
  EXPECT_EQ(train("abab cd", 1000, 2).merges, (Merges{{"a", "b"}}));
  EXPECT_EQ(train("abab", 1000, 3).merges, Merges{});
}

TEST(BpeTrainer, TakesLinesOneByOne) {
  // In one line the last "\n" would stand alone.
  EXPECT_EQ(train("a\n\n\nb", 1000).merges, Merges{});
  EXPECT_EQ(train("a \nb", 1000).merges, (Merges{{"\u0120", "\u010a"}}));
}

TEST(BpeTrainer, AddsUpItsTexts) {
  const std::string_view texts[] = {"ab", "", "ab cd"};
  EXPECT_EQ(train_bpe(texts, {.vocabulary = 1000, .min_frequency = 2}).merges,
            (Merges{{"a", "b"}}));
}

TEST(BpeTrainer, RefusesBadInput) {
  const auto error = [](auto... arguments) {
    return io::testing::message_of<std::invalid_argument>([&] { train(arguments...); });
  };
  EXPECT_EQ(error("ab", 260),
            "training a tokenizer: a vocabulary of 260 tokens has no room for the special tokens "
            "and the 256 bytes; expected at least 261");
  EXPECT_NE(error("ab", 300, 0).find("minimum frequency is 0"), std::string::npos);
  EXPECT_NE(error("", 300).find("there is no text"), std::string::npos);
  EXPECT_NE(error("a\xff", 300).find("not UTF-8 at byte 1"), std::string::npos);
}

}  // namespace
}  // namespace pareprop::data
