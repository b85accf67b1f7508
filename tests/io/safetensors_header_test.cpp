#include "pareprop/io/safetensors_header.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/io/header_bytes.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::file_bytes;
using testing::length_bytes;
using testing::message_of;
using testing::parse;

std::string refusal(const std::string& file) {
  return message_of<std::runtime_error>([&] { parse(file); });
}

// {"a": {...}} with these fields.
std::string tensor_json(const std::string& fields) { return R"({"a":{)" + fields + "}}"; }

std::string with_shape(const std::string& shape, const std::string& offsets = "[0,4]") {
  return tensor_json(R"("dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets);
}

TEST(SafetensorsHeader, IsRead) {
  const auto header = parse(file_bytes(
      R"({"b":{"data_offsets":[6,14],"shape":[],"dtype":"I64"},"__metadata__":{"k":"v","":""},)"
      R"("empty":{"dtype":"F64","shape":[2,0],"data_offsets":[6,6]},)"
      R"("a\u00e9\ud83d\ude00":{"dtype":"BF16","shape":[1,3],"data_offsets":[0,6]}}   )",
      14));
  const std::vector<SafetensorsEntry> expected = {
      {"a\xc3\xa9\xf0\x9f\x98\x80", SafetensorsDtype::bf16, {1, 3}, 0, 6},
      {"empty", SafetensorsDtype::f64, {2, 0}, 6, 6},
      {"b", SafetensorsDtype::i64, {}, 6, 14}};
  EXPECT_EQ(header.tensors, expected);
  EXPECT_EQ(header.metadata, (SafetensorsMetadata{{"k", "v"}, {"", ""}}));
}

TEST(SafetensorsHeader, CanBeWithoutTensors) {
  EXPECT_TRUE(parse(file_bytes("{}")).tensors.empty());
  EXPECT_EQ(parse(file_bytes("{}  ")).data_begin, 12U);
  EXPECT_EQ(parse(file_bytes(R"({"__metadata__":{}})")).metadata.size(), 0U);
}

TEST(SafetensorsHeader, LengthIsChecked) {
  EXPECT_EQ(refusal(""),
            "the file has 0 bytes, expected at least 8 for the length of the header. Is it a "
            "safetensors file?");
  EXPECT_NE(refusal("1234567").find("the file has 7 bytes"), std::string::npos);
  EXPECT_EQ(refusal(length_bytes(3) + "{}"),
            "the first 8 bytes give the header 3 bytes, but the file has only 2 bytes after them. "
            "Was it cut off?");
  EXPECT_EQ(
      refusal(length_bytes(100000001) + "{}"),
      "the first 8 bytes give the header 100000001 bytes, expected at most 100000000. Is it a "
      "safetensors file?");
  EXPECT_NE(refusal(length_bytes(~0ULL) + "{}").find("18446744073709551615"), std::string::npos);
  EXPECT_EQ(refusal(file_bytes("")), "the header is empty, expected a JSON object");
}

TEST(SafetensorsHeader, ALimitIsExact) {
  std::string json = "{}";
  json.resize(kMaxSafetensorsHeader, ' ');
  EXPECT_EQ(parse(file_bytes(json)).data_begin, kMaxSafetensorsHeader + 8);
}

TEST(SafetensorsHeader, AShortPrefixIsTheCallersMistake) {
  const std::string file = file_bytes("{}", 4);
  const auto bytes = std::as_bytes(std::span(file.data(), 9));
  EXPECT_THROW(parse_safetensors_header(bytes, file.size()), std::invalid_argument);
}

struct Malformed {
  std::string json;
  std::size_t data_bytes;
  std::string message;
};

TEST(SafetensorsHeader, EveryMistakeHasItsMessage) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"F32","shape":[1],"data_offsets":)" + first +
           R"(},"b":{"dtype":"F32","shape":[1],"data_offsets":)" + second + "}}";
  };
  const std::string size_range = ", expected an integer from 0 to 9223372036854775807";
  const std::vector<Malformed> cases = {
      {"{\"\xff\":1}", 0, "the header is not UTF-8 at byte 2"},
      {"{}\xc3", 0, "the header is not UTF-8 at byte 2"},
      {std::string("{}\0", 3), 0, "the header is not valid JSON: byte 2 is zero"},
      {"{", 0, "the header is not valid JSON at byte 2"},
      {"{} x", 0, "the header is not valid JSON at byte 4"},
      {R"({"a":"\ud800"})", 0, "the header is not valid JSON at byte 13"},
      {"[]", 0, "the header starts with '[', expected a JSON object: '{'"},
      {" {}", 0, "the header starts with ' ', expected a JSON object: '{'"},
      {"\xef\xbb\xbf{}", 0, "the header starts with '\\xef', expected a JSON object: '{'"},
      {"{" + a + "," + a + "}", 4, "'a' appears twice in the header"},
      {"{" + a + R"(,"\u0061":{}})", 4, "'a' appears twice in the header"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice in the header"},
      {R"({"__metadata__":{"k":"1","k":"1"}})", 0, "'k' appears twice in __metadata__"},
      {tensor_json(R"("dtype":"F32","dtype":"F32")"), 0, "'dtype' appears twice in tensor 'a'"},
      {R"({"__metadata__":{"k":1}})", 0, "__metadata__: 'k' is a number, expected a string"},
      {R"({"__metadata__":{"k":{}}})", 0, "__metadata__: 'k' is an object, expected a string"},
      {R"({"__metadata__":{"k":[]}})", 0, "__metadata__: 'k' is an array, expected a string"},
      {R"({"__metadata__":{"k":null}})", 0, "__metadata__: 'k' is null, expected a string"},
      {R"({"__metadata__":null})", 0, "__metadata__ is null, expected an object of strings"},
      {R"({"__metadata__":"x"})", 0, "__metadata__ is a string, expected an object of strings"},
      {R"({"a":1})", 0,
       "tensor 'a' is a number, expected an object with dtype, shape and data_offsets"},
      {R"({"a":[]})", 0,
       "tensor 'a' is an array, expected an object with dtype, shape and data_offsets"},
      {R"({"a":{}})", 0, "tensor 'a' has no dtype"},
      {tensor_json(R"("dtype":"F32")"), 0, "tensor 'a' has no shape"},
      {tensor_json(R"("dtype":"F32","shape":[])"), 0, "tensor 'a' has no data_offsets"},
      {tensor_json(R"("dtype":"F32","strides":[1])"), 0,
       "tensor 'a' has a field 'strides', expected only dtype, shape and data_offsets"},
      {tensor_json(R"("dtype":4)"), 0, "tensor 'a': dtype is a number, expected a string"},
      {tensor_json(R"("dtype":["F32"])"), 0, "tensor 'a': dtype is an array, expected a string"},
      {tensor_json(R"("dtype":"U16")"), 0,
       "tensor 'a' has dtype 'U16', which is not supported; expected one of BOOL, U8, I8, I16, "
       "F16, "
       "BF16, I32, F32, F64, I64. Convert the tensor before saving it"},
      {with_shape("4"), 4, "tensor 'a': shape is a number, expected an array of integers"},
      {with_shape(R"("4")"), 4, "tensor 'a': shape is a string, expected an array of integers"},
      {with_shape("{}"), 4, "tensor 'a': shape is an object, expected an array of integers"},
      {with_shape("[[1]]"), 4, "tensor 'a': shape[0] is an array, expected an integer"},
      {with_shape("[1,true]"), 4, "tensor 'a': shape[1] is a boolean, expected an integer"},
      {with_shape("[-1]"), 4, "tensor 'a': shape[0] is -1" + size_range},
      {with_shape("[-0]"), 4, "tensor 'a': shape[0] is -0" + size_range},
      {with_shape("[1,1.0]"), 4, "tensor 'a': shape[1] is '1.0'" + size_range},
      {with_shape("[1e0]"), 4, "tensor 'a': shape[0] is '1e0'" + size_range},
      {with_shape("[9223372036854775808]"), 4,
       "tensor 'a': shape[0] is 9223372036854775808" + size_range},
      {with_shape("[18446744073709551617]"), 4,
       "tensor 'a': shape[0] is '18446744073709551617'" + size_range},
      {with_shape("[4294967296,4294967296]"), 4,
       "tensor 'a' (F32 [4294967296, 4294967296]): its size in bytes overflows"},
      {with_shape("[2305843009213693952]", "[0,0]"), 0,
       "tensor 'a' (F32 [2305843009213693952]): its size in bytes overflows"},
      {with_shape("[4294967296,4294967296,0]", "[0,0]"), 0,
       "tensor 'a' (F32 [4294967296, 4294967296, 0]): its size in bytes overflows"},
      {with_shape("[1]", "[0]"), 4,
       "tensor 'a': data_offsets has 1 numbers, expected two, the begin and the end"},
      {with_shape("[1]", "[0,4,8]"), 4,
       "tensor 'a': data_offsets has 3 numbers, expected two, the begin and the end"},
      {with_shape("[1]", "[-4,0]"), 4, "tensor 'a': data_offsets[0] is -4" + size_range},
      {with_shape("[1]", "[0,4.5]"), 4, "tensor 'a': data_offsets[1] is '4.5'" + size_range},
      {with_shape("[1]", "[4,0]"), 4,
       "tensor 'a' (F32 [1]): data_offsets [4, 0] end before they begin"},
      {with_shape("[2]"), 4,
       "tensor 'a' (F32 [2]) needs 8 bytes, but data_offsets [0, 4] are 4 bytes"},
      {with_shape("[]", "[0,1]"), 1,
       "tensor 'a' (F32 []) needs 4 bytes, but data_offsets [0, 1] are 1 byte"},
      {with_shape("[0]"), 4,
       "tensor 'a' (F32 [0]) needs 0 bytes, but data_offsets [0, 4] are 4 bytes"},
      {with_shape("[1]"), 3,
       "tensor 'a' (F32 [1]): data_offsets [0, 4] are outside of the file, whose data has 3 bytes. "
       "Was it cut off?"},
      {with_shape("[1]", "[4,8]"), 8,
       "tensor 'a' (F32 [1]): data_offsets [4, 8] leave a gap before them, expected them to begin "
       "at 0"},
      {two("[0,4]", "[5,9]"), 9,
       "tensor 'b' (F32 [1]): data_offsets [5, 9] leave a gap before them, expected them to begin "
       "at 4"},
      {two("[0,4]", "[3,7]"), 7,
       "tensor 'b' (F32 [1]): data_offsets [3, 7] overlap another tensor, expected them to begin "
       "at 4"},
      {two("[0,4]", "[0,4]"), 4,
       "tensor 'b' (F32 [1]): data_offsets [0, 4] overlap another tensor, expected them to begin "
       "at 4"},
      {R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
       R"("b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
       4,
       "tensor 'a' (U8 [0]): data_offsets [2, 2] overlap another tensor, expected them to begin at "
       "4"},
      {"{}", 1,
       "the last 1 byte of the file belong to no tensor; expected the data to end after 0 bytes"},
      {"{" + a + "}", 9,
       "the last 5 bytes of the file belong to no tensor; expected the data to end after 4 bytes"},
  };
  for (const Malformed& each : cases) {
    EXPECT_EQ(refusal(file_bytes(each.json, each.data_bytes)), each.message) << each.json;
  }
}

TEST(SafetensorsHeader, DeepNestingIsRefusedAtItsSecondLevel) {
  std::string json = R"({"a":)" + std::string(5000000, '[');
  EXPECT_NE(refusal(file_bytes(json)).find("'a' is an array"), std::string::npos);
}

TEST(SafetensorsHeader, ALongNameIsCutInMessages) {
  const std::string json = "{\"" + std::string(1000000, 'n') + "\":1}";
  EXPECT_LT(refusal(file_bytes(json)).size(), 300U);
}

TEST(SafetensorsLayout, OrdersByTypeThenNameAndCoversTheData) {
  const auto header = lay_out_safetensors({{"z", SafetensorsDtype::f32, {2}},
                                           {"b", SafetensorsDtype::boolean, {3}},
                                           {"a", SafetensorsDtype::f32, {0}},
                                           {"i", SafetensorsDtype::i64, {}}},
                                          {{"k", "v"}});
  const std::vector<SafetensorsEntry> expected = {{"i", SafetensorsDtype::i64, {}, 0, 8},
                                                  {"a", SafetensorsDtype::f32, {0}, 8, 8},
                                                  {"z", SafetensorsDtype::f32, {2}, 8, 16},
                                                  {"b", SafetensorsDtype::boolean, {3}, 16, 19}};
  EXPECT_EQ(header.tensors, expected);
  const std::string bytes = format_safetensors_header(header);
  EXPECT_EQ(bytes.size() % 8, 0U);
  EXPECT_EQ(bytes.substr(8, 70),
            R"({"__metadata__":{"k":"v"},"i":{"dtype":"I64","shape":[],"data_offsets")");
  EXPECT_EQ(parse(bytes + std::string(19, '\0')), header);
}

TEST(SafetensorsLayout, RefusesWhatTheFormatCannotHold) {
  const auto refused = [](std::vector<SafetensorsEntry> tensors, SafetensorsMetadata metadata) {
    return message_of<std::invalid_argument>([&] { lay_out_safetensors(tensors, metadata); });
  };
  EXPECT_EQ(refused({{"a", SafetensorsDtype::f32, {1}}, {"a", SafetensorsDtype::u8, {1}}}, {}),
            "two tensors have the name 'a'; names in a file must differ");
  EXPECT_NE(refused({{"__metadata__"}}, {}).find("cannot be named __metadata__"),
            std::string::npos);
  EXPECT_EQ(refused({{"a\xff"}}, {}), R"(the tensor's name 'a\xff' is not UTF-8 at byte 1)");
  EXPECT_NE(refused({}, {{"\xff", ""}}).find("metadata key"), std::string::npos);
  EXPECT_NE(refused({}, {{"k", "\xff"}}).find("metadata of 'k'"), std::string::npos);
  EXPECT_NE(refused({{"a", SafetensorsDtype::f32, {-1}}}, {}).find("negative"), std::string::npos);
  EXPECT_NE(refused({}, {{"k", std::string(kMaxSafetensorsHeader, 'x')}}).find("at most 100000000"),
            std::string::npos);
}

}  // namespace
}  // namespace pareprop::io
