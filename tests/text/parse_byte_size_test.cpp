#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "pareprop/text/units.h"

namespace pareprop::text {
namespace {

TEST(ByteSize, UnitsOf1000AndOf1024) {
  EXPECT_EQ(parse_byte_size("8GiB"), std::int64_t{8} << 30);
  EXPECT_EQ(parse_byte_size("8GB"), 8'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5 MiB"), 3 << 19);
  EXPECT_EQ(parse_byte_size("4096B"), 4096);
  EXPECT_EQ(parse_byte_size("2kB"), 2000);
  EXPECT_EQ(parse_byte_size("2KB"), 2000);
  EXPECT_EQ(parse_byte_size("2kib"), 2048);
  EXPECT_EQ(parse_byte_size("1TiB"), std::int64_t{1} << 40);
  EXPECT_EQ(parse_byte_size("0B"), 0);
}

std::string message(const char* text) {
  try {
    parse_byte_size(text);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(ByteSize, AnythingElseIsRefusedAndSaysWhatWasExpected) {
  for (const char* text : {"", "GiB", "8", "8 ", "8G", "8Gib8", "8 GiB ", "-1GiB", "nan", "inf",
                           "1e3GiB", "8,5GiB", "99999999999PiB", "0x10MiB", "8iB"}) {
    EXPECT_NE(message(text).find("expected a number and a unit"), std::string::npos) << text;
  }
  EXPECT_NE(message("8").find("the unit is missing"), std::string::npos);
  EXPECT_NE(message("8G").find("'g' is not a unit"), std::string::npos);
}

}  // namespace
}  // namespace pareprop::text
