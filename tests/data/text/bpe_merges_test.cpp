#include "pareprop/data/text/bpe_merges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <utility>

namespace pareprop::data {
namespace {

using Word = std::vector<TokenId>;

// As the rule says it: look at all pairs, merge the leftmost of the best, again.
Word merged_slowly(Word word,
                   const std::vector<std::pair<std::pair<TokenId, TokenId>, TokenId>>& merges) {
  for (;;) {
    std::size_t best = merges.size();
    std::size_t place = 0;
    for (std::size_t i = 1; i < word.size(); ++i) {
      for (std::size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].first == std::pair(word[i - 1], word[i])) {
          best = rank;
          place = i - 1;
        }
      }
    }
    if (best == merges.size()) return word;
    word[place] = merges[best].second;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BpeMerges, EqualTheSlowRuleOnRandomWords) {
  const auto seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::pair<std::pair<TokenId, TokenId>, TokenId>> rules;
    BpeMerges merges;
    TokenId tokens = 3;
    while (tokens < 20) {
      const std::pair<TokenId, TokenId> pair(random() % tokens, random() % tokens);
      if (!merges.add(pair.first, pair.second, tokens)) continue;
      rules.emplace_back(pair, tokens++);
    }
    Word word(random() % 40);
    for (TokenId& token : word) token = static_cast<TokenId>(random() % 3);
    const Word expected = merged_slowly(word, rules);
    merges.apply(word);
    ASSERT_EQ(word, expected) << "round " << round;
  }
}

TEST(BpeMerges, MergeRunsFromTheLeft) {
  BpeMerges merges;
  merges.add(0, 0, 1);
  Word word{0, 0, 0};
  merges.apply(word);
  EXPECT_EQ(word, (Word{1, 0}));
  Word empty;
  merges.apply(empty);
  EXPECT_TRUE(empty.empty());
}

TEST(BpeMerges, TakeAPairOnce) {
  BpeMerges merges;
  EXPECT_TRUE(merges.add(1, 2, 3));
  EXPECT_FALSE(merges.add(1, 2, 4));
  EXPECT_TRUE(merges.add(2, 1, 4));
}

// With a quadratic loop this would take minutes.
TEST(BpeMerges, AreFastOnLongWords) {
  BpeMerges merges;
  for (TokenId level = 0; level < 18; ++level) merges.add(level, level, level + 1);
  Word word(1 << 18, 0);
  merges.apply(word);
  EXPECT_EQ(word, (Word{18}));
}

}  // namespace
}  // namespace pareprop::data
