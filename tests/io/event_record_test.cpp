#include "pareprop/io/event_record.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace pareprop::io {
namespace {

std::size_t whole(const std::string& file) {
  return whole_records(std::as_bytes(std::span(file.data(), file.size())));
}

TEST(ProtoMessage, IsEncodedAsProtobufSays) {
  ProtoMessage message;
  message.add_integer(1, 150);
  EXPECT_EQ(message.bytes(), "\x08\x96\x01");
  message = {};
  message.add_bytes(2, "testing");
  EXPECT_EQ(message.bytes(), "\x12\x07testing");
  message = {};
  message.add_float(2, 1.0F);
  EXPECT_EQ(message.bytes(), std::string("\x15\0\0\x80\x3f", 5));
  message = {};
  message.add_double(1, 1.0);
  EXPECT_EQ(message.bytes(), std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9));
  message = {};
  message.add_integer(16, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(message.bytes(), "\x80\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
}

TEST(Records, AreWholeUntilTheFirstThatIsCutOrDamaged) {
  const std::string first = make_record("first");
  const std::string second = make_record("");
  const std::string both = first + second;
  EXPECT_EQ(first.size(), 8U + 4 + 5 + 4);
  EXPECT_EQ(whole(""), 0U);
  EXPECT_EQ(whole(both), both.size());
  for (std::size_t size = 0; size < both.size(); ++size) {
    EXPECT_EQ(whole(both.substr(0, size)), size < first.size() ? 0 : first.size()) << size;
  }
  for (std::size_t at = 0; at < both.size(); ++at) {
    std::string damaged = both;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_EQ(whole(damaged), at < first.size() ? 0 : first.size()) << at;
  }
  EXPECT_EQ(whole(both + std::string(100, '\0')), both.size());
}

}  // namespace
}  // namespace pareprop::io
