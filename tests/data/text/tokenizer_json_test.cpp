#include "pareprop/data/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/data/text/small_tables.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using nlohmann::json;
using testing::small_tables;

json good() { return json::parse(format_tokenizer_json(small_tables({{"a", "b"}}))); }

std::string json_error(const json& file) {
  return message_of<std::invalid_argument>([&] { parse_tokenizer_json(file.dump()); });
}

std::string json_error(std::string_view vocab, std::string_view merges) {
  return message_of<std::invalid_argument>([&] { parse_vocabulary(vocab, merges); });
}

TEST(TokenizerJson, ReadsWhatItWrites) {
  const BpeTables tables = small_tables({{"a", "b"}, {"\u0120", "ab"}});
  EXPECT_EQ(parse_tokenizer_json(format_tokenizer_json(tables)), tables);
  EXPECT_EQ(parse_vocabulary(format_vocab_json(tables), format_merges_txt(tables)), tables);
}

TEST(TokenizerJson, ReadsOlderMergesAndFewerFields) {
  json file = good();
  file["model"]["merges"] = {"a b"};
  for (const char* field : {"type", "dropout", "byte_fallback", "ignore_merges"}) {
    file["model"].erase(field);
  }
  file["pre_tokenizer"].erase("use_regex");
  file.erase("normalizer");
  EXPECT_EQ(parse_tokenizer_json(file.dump()), small_tables({{"a", "b"}}));
}

TEST(TokenizerJson, TakesAddedTokensThatTheVocabularyLacks) {
  json file = good();
  file["added_tokens"].push_back({{"id", 262}, {"content", "<extra 0>"}});
  const BpeTables tables = parse_tokenizer_json(file.dump());
  EXPECT_EQ(tables.tokens.at(262), "<extra 0>");
  EXPECT_EQ(tables.special.back(), "<extra 0>");
}

TEST(TokenizerJson, RefusesTokenizersOfOtherKinds) {
  const auto with = [](const char* pointer, const json& value) {
    json file = good();
    file[json::json_pointer(pointer)] = value;
    return json_error(file);
  };
  const std::string end = ": a byte-level BPE like RoBERTa's";
  EXPECT_EQ(with("/model/type", "WordPiece"),
            "the model's type is 'WordPiece'; expected 'BPE'" + end);
  EXPECT_EQ(with("/model/type", nullptr), "the model's type is null; expected 'BPE'" + end);
  EXPECT_EQ(with("/model/dropout", 0.1), "the model's dropout is 0.1; expected none" + end);
  EXPECT_EQ(with("/model/byte_fallback", true),
            "the model's byte_fallback is true; expected none" + end);
  EXPECT_EQ(with("/model/end_of_word_suffix", "</w>"),
            "the model's end_of_word_suffix is '</w>'; expected none" + end);
  EXPECT_EQ(with("/normalizer", {{"type", "NFC"}}), "the normalizer is 'NFC'; expected none" + end);
  EXPECT_EQ(with("/pre_tokenizer/type", "Whitespace"),
            "the pre_tokenizer is 'Whitespace'; expected 'ByteLevel'" + end);
  EXPECT_EQ(with("/pre_tokenizer", nullptr),
            "the pre_tokenizer is null; expected 'ByteLevel'" + end);
  EXPECT_EQ(with("/pre_tokenizer/add_prefix_space", true),
            "add_prefix_space is true; expected false" + end);
  EXPECT_EQ(with("/pre_tokenizer/use_regex", false), "use_regex is false; expected true" + end);
}

TEST(TokenizerJson, SaysWhatIsWrongInTheFile) {
  const auto with = [](const char* pointer, const json& value) {
    json file = good();
    file[json::json_pointer(pointer)] = value;
    return json_error(file);
  };
  EXPECT_EQ(with("/model/vocab/a", 6), "the id 6 appears twice, for the tokens 'a' and '\u0101'");
  EXPECT_EQ(with("/model/vocab/a", 900),
            "no token has the id 102, but 'b' has 103; expected all ids from 0 on");
  EXPECT_EQ(with("/model/vocab/a", -1),
            "the token 'a' has the id -1; expected an integer from 0 to 2147483647");
  EXPECT_EQ(with("/model/vocab/a", 18446744073709551615ULL),
            "the token 'a' has the id 18446744073709551615; expected an integer from 0 to "
            "2147483647");
  EXPECT_NE(with("/model/vocab/a", json::array()).find("has the id an array"), std::string::npos);
  EXPECT_EQ(with("/model/merges/0", "ab"),
            "merge 1 is 'ab'; expected two tokens with a space between them");
  EXPECT_EQ(with("/model/merges/0", {"a", "b", "c"}), "merge 1 is an array; expected two tokens");
  EXPECT_EQ(with("/model/merges", 3), "the model's merges are missing; expected an array");
  EXPECT_EQ(with("/model/vocab", 3), "the model's vocab is missing; expected an object of ids");
  EXPECT_EQ(with("/model", 3), "tokenizer.json has no model");
  EXPECT_EQ(with("/added_tokens", 3), "added_tokens is 3; expected an array");
  EXPECT_NE(with("/added_tokens/0", 3).find("an added token is 3"), std::string::npos);
  EXPECT_NE(with("/added_tokens/0/id", 7).find("the id 7 appears twice"), std::string::npos);
  EXPECT_EQ(json_error(json::array()), "tokenizer.json is not a JSON object");
  EXPECT_EQ(
      message_of<std::invalid_argument>([] { parse_tokenizer_json("{"); }),
      "tokenizer.json: line 1, column 2: expected JSON: unexpected end of input; expected string "
      "literal");
  EXPECT_EQ(message_of<std::invalid_argument>([] { parse_tokenizer_json("{\"a\": 1e999}"); }),
            "tokenizer.json: line 1, column 7: a number is too large: '1e999'");
}

// A recursive reader or printer would overflow its stack.
TEST(TokenizerJson, SurvivesDeepNesting) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  const std::string file = format_tokenizer_json(small_tables());
  for (const std::string field : {"\"normalizer\": null", "\"vocab\": {"}) {
    std::string text = file;
    const std::size_t at = text.find(field);
    ASSERT_NE(at, std::string::npos);
    const std::size_t colon = text.find(':', at);
    text = text.substr(0, colon + 1) + deep + ",\"x\":" + text.substr(colon + 1);
    const auto message = message_of<std::invalid_argument>([&] { parse_tokenizer_json(text); });
    EXPECT_NE(message.find("nested more than 100 deep"), std::string::npos) << message;
  }
}

TEST(Vocabulary, ReadsMergesWithAnyLineEnd) {
  const std::string vocab = format_vocab_json(small_tables({{"#", "#"}, {"a", "b"}}));
  for (const char* merges : {"#version: 0.2\n# #\na b\n", "# #\r\na b\r\n", "# #\n\na b"}) {
    EXPECT_EQ(parse_vocabulary(vocab, merges), small_tables({{"#", "#"}, {"a", "b"}}));
  }
}

TEST(Vocabulary, SaysWhatIsWrong) {
  const std::string vocab = format_vocab_json(small_tables({{"a", "b"}}));
  const std::string expected = "; expected two tokens with a space between them";
  EXPECT_EQ(json_error(vocab, "#version: 0.2\na b\nab\n"),
            "line 3 of merges.txt is 'ab'" + expected);
  EXPECT_EQ(json_error(vocab, "a b c"), "line 1 of merges.txt is 'a b c'" + expected);
  EXPECT_EQ(json_error(vocab, " b"), "line 1 of merges.txt is ' b'" + expected);
  EXPECT_EQ(json_error(vocab, "a "), "line 1 of merges.txt is 'a '" + expected);
  EXPECT_EQ(json_error("[]", ""), "vocab.json is not a JSON object");
  EXPECT_EQ(json_error("", ""),
            "vocab.json: line 1, column 1: expected JSON: unexpected end of input; expected '[', "
            "'{', or a "
            "literal");
}

}  // namespace
}  // namespace pareprop::data
