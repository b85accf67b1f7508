#include "pareprop/data/text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "pareprop/text/utf8.h"
#include "tests/data/text/small_tables.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using testing::small_tables;
using Ids = std::vector<TokenId>;

std::string tables_error(const BpeTables& tables) {
  return message_of<std::invalid_argument>([&] { Tokenizer{tables}; });
}

TEST(Tokenizer, MergesInsideWords) {
  const Tokenizer tokenizer(
      small_tables({{"h", "e"}, {"t", "he"}, {"\u0120", "the"}, {"e", "\u0120"}}));
  EXPECT_EQ(tokenizer.size(), 265);
  EXPECT_EQ(tokenizer.encode("the the he"), (Ids{262, 263, 5 + ' ', 261}));
  EXPECT_EQ(tokenizer.encode("e "), (Ids{5 + 'e', 5 + ' '}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, TakesSpecialTokensInTextForCharacters) {
  const Tokenizer tokenizer(small_tables());
  const Ids ids = tokenizer.encode("<mask>");
  EXPECT_EQ(ids.size(), 6U);
  for (const TokenId id : ids) EXPECT_FALSE(tokenizer.is_special(id));
}

TEST(Tokenizer, KnowsItsSpecialTokens) {
  BpeTables tables = small_tables();
  std::swap(tables.tokens[4], tables.tokens.back());  // as RoBERTa has it
  const Tokenizer tokenizer(tables);
  EXPECT_EQ(tokenizer.start(), 0);
  EXPECT_EQ(tokenizer.padding(), 1);
  EXPECT_EQ(tokenizer.end(), 2);
  EXPECT_EQ(tokenizer.unknown(), 3);
  EXPECT_EQ(tokenizer.mask(), 260);
  EXPECT_TRUE(tokenizer.is_special(260));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_EQ(tokenizer.decode(Ids{0, 5 + 'a', 260, 2, 1}), "a");
}

TEST(Tokenizer, GivesBackEveryCharacter) {
  const Tokenizer tokenizer(small_tables({{"\u00c3", "\u00a9"}}));
  std::string text;
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (code < 0xd800 || code > 0xdfff) text += text::to_utf8(code);
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8AndUnknownIds) {
  const Tokenizer tokenizer(small_tables());
  EXPECT_EQ(message_of<std::invalid_argument>([&] { tokenizer.encode("abc\xff"); }),
            "tokenizer: the text is not UTF-8 at byte 3");
  for (const TokenId id : {-1, 261}) {
    EXPECT_EQ(message_of<std::invalid_argument>([&] { tokenizer.decode(Ids{id}); }),
              "tokenizer: there is no token " + std::to_string(id) + "; expected 0 to 260");
  }
}

TEST(Tokenizer, SaysWhatIsWrongWithItsTables) {
  BpeTables tables = small_tables();
  tables.tokens.push_back("a");
  EXPECT_EQ(tables_error(tables),
            "tokenizer: the token 'a' appears twice, with the ids 102 and 261");

  tables = small_tables();
  tables.tokens[5 + 'a'] = "aa";
  EXPECT_EQ(tables_error(tables), "tokenizer: byte 97 has no token, 'a'; expected all 256");

  tables = small_tables();
  tables.special.erase(tables.special.begin() + 1);
  EXPECT_NE(tables_error(tables).find("it has no special token '<pad>'"), std::string::npos);

  tables = small_tables();
  tables.special.push_back("<extra>");
  EXPECT_EQ(tables_error(tables), "tokenizer: a special token is '<extra>', which is not a token");

  for (const char* token : {"", "a b", "\u65e5"}) {
    tables = small_tables();
    tables.tokens.push_back(token);
    EXPECT_NE(tables_error(tables).find("(id 261) is not written in the byte alphabet"),
              std::string::npos);
  }
  EXPECT_NE(tables_error({}).find("no special token '<s>'"), std::string::npos);
}

TEST(Tokenizer, SaysWhatIsWrongWithItsMerges) {
  BpeTables tables = small_tables({{"a", "b"}});
  tables.merges.emplace_back("xy", "b");
  EXPECT_EQ(tables_error(tables),
            "tokenizer: the merge 'xy' + 'b' names 'xy', which is not a token");
  tables.merges.back() = {"b", "xy"};
  EXPECT_EQ(tables_error(tables),
            "tokenizer: the merge 'b' + 'xy' names 'xy', which is not a token");
  tables.merges.back() = {"b", "a"};
  EXPECT_EQ(tables_error(tables),
            "tokenizer: the merge 'b' + 'a' makes 'ba', which is not a token");
  tables.merges.back() = {"a", "b"};
  EXPECT_EQ(tables_error(tables), "tokenizer: the merge 'a' + 'b' appears twice");
  tables = small_tables({{"<", "s>"}});
  tables.tokens.back() = "s>";
  EXPECT_EQ(tables_error(tables), "tokenizer: the merge '<' + 's>' has a special token");
}

}  // namespace
}  // namespace pareprop::data
