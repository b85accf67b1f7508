#include "pareprop/io/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::message_of;

std::string fault(std::string_view text) {
  return message_of<std::invalid_argument>([&] { parse_json(text, "run/config.json"); });
}

std::string nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

TEST(Json, IsParsed) {
  EXPECT_EQ(parse_json(R"({"a": [1, "\u00e9}{[]"]})", "a").at("a").at(1), "\xc3\xa9}{[]");
  EXPECT_EQ(parse_json("\xef\xbb\xbf 3", "a"), 3);
}

TEST(Json, ErrorsNameSourceLineAndColumn) {
  EXPECT_EQ(
      fault("{\n  \"a\": 1,\n  b: 2\n}").find("run/config.json: line 3, column 3: expected JSON: "),
      0U)
      << fault("{\n  \"a\": 1,\n  b: 2\n}");
  // Columns are characters, not bytes.
  EXPECT_EQ(fault("[\"\xc3\xa9\xc3\xa9\" x]").find("run/config.json: line 1, column 7: "), 0U)
      << fault("[\"\xc3\xa9\xc3\xa9\" x]");
  EXPECT_EQ(fault("").find("run/config.json: line 1, column 1: "), 0U) << fault("");
  EXPECT_EQ(fault("{\n\"a\": 1").find("run/config.json: line 2, column 7: "), 0U)
      << fault("{\n\"a\": 1");
  EXPECT_EQ(fault("[1e999]"), "run/config.json: line 1, column 2: a number is too large: '1e999'");
  EXPECT_EQ(fault("[1] 2").find("run/config.json: line 1, column 5: "), 0U) << fault("[1] 2");
}

TEST(Json, KeysOfTheOutermostObjectAreFound) {
  const std::string text = "{\n \"\\\"b\": {\"b\": 1},\n \"a\": \"b\",\n \"b\" : [\"{\"]}";
  parse_json(text, "it");
  EXPECT_EQ(place_of_key(text, "a"), "line 3, column 2");
  EXPECT_EQ(place_of_key(text, "b"), "line 4, column 2");
  EXPECT_EQ(place_of_key(text, "c"), "");
}

// The library would find it when the string is written, long after.
TEST(Json, StringsAreUtf8) {
  EXPECT_EQ(fault("{\n \"a\": \"\xe9t\xe9\"}"),
            "run/config.json: line 2, column 8: the text is not UTF-8");
  EXPECT_NE(fault(R"(["\ud800"])").find("line 1"), std::string::npos);
  EXPECT_EQ(fault(std::string_view("[1]\0[2]", 7)),
            "run/config.json: line 1, column 4: there is a zero byte; expected JSON");
}

TEST(Json, FaultsAreSaidWithoutTheNameOfAnException) {
  const nlohmann::json value = parse_json("{\"a\": 1}", "it");
  try {
    value.at("step");
    FAIL();
  } catch (const nlohmann::json::exception& error) {
    EXPECT_EQ(json_fault(error), "key 'step' not found");
  }
  EXPECT_EQ(json_fault(std::runtime_error("other")), "other");
}

TEST(Json, WhatATerminalWouldObeyIsEscapedInMessages) {
  const std::string message = fault("[\"a\x1b[31m");
  EXPECT_EQ(message.find('\x1b'), std::string::npos) << message;
}

TEST(Json, DeepNestingIsRefusedWhereItBecomesTooDeep) {
  EXPECT_EQ(parse_json(nested(kDeepestJson), "a").size(), 1U);
  const std::string expected =
      "run/config.json: line 1, column 101: lists and objects are nested more than 100 deep";
  EXPECT_EQ(fault(nested(kDeepestJson + 1)), expected);
  EXPECT_EQ(fault(nested(1'000'000)), expected);
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) objects += "{\"a\":";
  EXPECT_NE(fault(objects).find("nested more than 100 deep"), std::string::npos);
  // Brackets in strings, also after an escaped quote, are text.
  EXPECT_EQ(parse_json("[\"\\\"" + std::string(1000, '[') + "\"]", "a").size(), 1U);
}

}  // namespace
}  // namespace pareprop::io
