#include "pareprop/data/text/token_masking.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/data/text/small_tables.h"

namespace pareprop::data {
namespace {

using Row = std::vector<std::int64_t>;

struct Masked {
  Row input;
  Row target;
};

Masked masked(const TokenMasking& masking, Row input, std::uint64_t key) {
  Row target(input.size());
  masking.apply(CounterRandom{key}, input, target);
  return {input, target};
}

class TokenMaskingTest : public ::testing::Test {
 protected:
  const Tokenizer tokenizer_{testing::small_tables()};
  const TokenMasking masking_{tokenizer_};
};

// Bounds of five standard deviations around what the rule says.
TEST_F(TokenMaskingTest, HasTheSharesItPromises) {
  constexpr int kRows = 4000;
  constexpr int kContent = 61;
  constexpr TokenId kToken = 5 + 'a';
  Row row(kContent + 2, kToken);
  row.front() = tokenizer_.start();
  row.back() = tokenizer_.end();
  double scored = 0, hidden = 0, replaced = 0, kept = 0;
  std::map<std::int64_t, int> at_place;
  std::map<std::int64_t, int> drawn;
  for (int k = 0; k < kRows; ++k) {
    const Masked result = masked(masking_, row, static_cast<std::uint64_t>(k));
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (result.target[i] == kNotScored) {
        ASSERT_EQ(result.input[i], row[i]);
        continue;
      }
      ASSERT_EQ(result.target[i], kToken);
      ++at_place[static_cast<std::int64_t>(i)];
      ++scored;
      if (result.input[i] == tokenizer_.mask()) {
        ++hidden;
      } else if (result.input[i] == kToken) {
        ++kept;
      } else {
        ASSERT_GE(result.input[i], 5);
        ++drawn[result.input[i]];
        ++replaced;
      }
    }
  }
  const auto near = [](double count, double total, double share) {
    return std::abs(count - total * share) < 5 * std::sqrt(total * share * (1 - share));
  };
  EXPECT_TRUE(near(scored, kRows * kContent, 0.15)) << scored;
  EXPECT_TRUE(near(hidden, scored, 0.8)) << hidden;
  EXPECT_TRUE(near(replaced, scored, 0.1 * 255 / 256)) << replaced;
  EXPECT_TRUE(near(kept, scored, 0.1 + 0.1 / 256)) << kept;
  EXPECT_EQ(drawn.size(), 255U);
  ASSERT_EQ(at_place.size(), static_cast<std::size_t>(kContent));
  for (const auto& [place, count] : at_place) EXPECT_TRUE(near(count, kRows, 0.15)) << place;
}

TEST_F(TokenMaskingTest, ScoresAtLeastOneTokenAndNeverASpecialOne) {
  for (std::uint64_t key = 0; key < 200; ++key) {
    const Masked result = masked(masking_, {0, 5 + 'x', 2, 1, 1}, key);
    EXPECT_EQ(result.target, (Row{-100, 5 + 'x', -100, -100, -100}));
  }
  const Masked none = masked(masking_, {0, 2, 1}, 1);
  EXPECT_EQ(none.target, (Row{-100, -100, -100}));
  EXPECT_EQ(none.input, (Row{0, 2, 1}));
}

}  // namespace
}  // namespace pareprop::data
