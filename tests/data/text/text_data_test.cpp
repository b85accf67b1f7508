#include "pareprop/data/text/text_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <system_error>

#include "pareprop/data/text/tokenizer_file.h"
#include "tests/data/text/small_tables.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;

std::string lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "line " + std::to_string(100 + i) + "\n";
  return text;
}

TEST(TextData, OfTheNovelIsAllOfIt) {
  const TextData data = open_text("persuasion");
  EXPECT_EQ(data.tokenizer.size(), 4096);
  const std::string train = data.tokenizer.decode(data.train);
  const std::string held_out = data.tokenizer.decode(data.held_out);
  EXPECT_EQ(train.size() + held_out.size(), 466854U);
  EXPECT_EQ(train.substr(0, 10), "Persuasion");
  EXPECT_NE(held_out.find("Her spring of felicity was in the glow of her spirits"),
            std::string::npos);
  const double share = static_cast<double>(held_out.size()) / 466854;
  EXPECT_GT(share, 0.045);
  EXPECT_LE(share, 0.05);
  // Words of prose are far from equally likely: a uniform guess has log(4096) = 8.3 nats.
  EXPECT_GT(unigram_entropy(data.train), 5);
  EXPECT_LT(unigram_entropy(data.train), 7);
}

TEST(TextData, JoinsFilesAndHoldsTheEndOfEachOut) {
  const TemporaryFolder folder;
  put(folder / "a.txt", lines(40));
  put(folder / "b.txt", lines(20));
  put(folder / "c.txt", "");
  for (const std::string& spec : {folder.path().string(), "text:" + folder.path().string()}) {
    const TextData data = open_text(spec, {.vocabulary = 300});
    EXPECT_EQ(data.tokenizer.decode(data.train), lines(38) + lines(19));
    EXPECT_EQ(data.tokenizer.decode(data.held_out), "line 138\nline 139\nline 119\n");
    EXPECT_EQ(std::count(data.train.begin(), data.train.end(), data.tokenizer.end()), 1);
    EXPECT_EQ(std::count(data.held_out.begin(), data.held_out.end(), data.tokenizer.end()), 1);
  }
}

TEST(TextData, HoldsWordsOutWhereNoLineStartsLateEnough) {
  const TemporaryFolder folder;
  std::string words;
  for (int i = 0; i < 100; ++i) words += (i == 0 ? "w" : " w") + std::to_string(100 + i);
  put(folder / "a.txt", words);
  const TextData data = open_text((folder / "a.txt").string(), {.vocabulary = 300});
  EXPECT_EQ(data.tokenizer.decode(data.held_out), " w196 w197 w198 w199");
  EXPECT_EQ(data.tokenizer.decode(data.train) + data.tokenizer.decode(data.held_out), words);
  // Where one file has lines to hold out, the others stay whole.
  put(folder / "b.txt", lines(40));
  const TextData both = open_text(folder.path().string(), {.vocabulary = 300});
  EXPECT_EQ(both.tokenizer.decode(both.held_out), "line 138\nline 139\n");
}

TEST(TextData, TakesATokenizer) {
  const TemporaryFolder folder;
  put(folder / "a.txt", "abab");
  save_tokenizer(Tokenizer(testing::small_tables({{"a", "b"}})), folder / "tokenizer");
  const TextData data = open_text((folder / "a.txt").string(), {.tokenizer = folder / "tokenizer"});
  EXPECT_EQ(data.train, (std::vector<TokenId>{261, 261}));
}

TEST(TextData, RefusesBadInput) {
  EXPECT_NE(message_of<std::invalid_argument>([] { open_text("text:"); }).find("no path is given"),
            std::string::npos);
  EXPECT_NE(message_of<std::system_error>([] { open_text("no/such.txt"); }).find("no/such.txt"),
            std::string::npos);
  EXPECT_NE(message_of<std::invalid_argument>([] {
              open_text("persuasion", {.vocabulary = 100});
            }).find("expected at least 261"),
            std::string::npos);
}

TEST(UnigramEntropy, OfKnownShares) {
  EXPECT_NEAR(unigram_entropy(std::vector<TokenId>{1, 2, 3, 4}), std::log(4.0), 1e-15);
  EXPECT_NEAR(unigram_entropy(std::vector<TokenId>{7, 7, 7, 9}),
              -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-15);
  EXPECT_EQ(unigram_entropy(std::vector<TokenId>{5, 5}), 0);
  EXPECT_EQ(unigram_entropy({}), 0);
}

}  // namespace
}  // namespace pareprop::data
