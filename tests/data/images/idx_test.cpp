#include "pareprop/data/images/idx.h"

#include <gtest/gtest.h>

#include <span>
#include <stdexcept>
#include <string>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::bytes_of;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::idx_bytes;

std::string idx_error(const std::string& text) {
  return message_of<std::runtime_error>([&] { parse_idx(bytes_of(text)); });
}

TEST(ParseIdx, GivesSizesAndValues) {
  const std::string text = idx_bytes({2, 1, 3}, "abcdef");
  const IdxArray array = parse_idx(bytes_of(text));
  EXPECT_EQ(array.sizes, (std::vector<std::int64_t>{2, 1, 3}));
  ASSERT_EQ(array.values.size(), 6u);
  EXPECT_EQ(array.values[5], std::byte{'f'});
}

TEST(ParseIdx, RefusesWhatItIsNot) {
  expect_part(idx_error(""), "two zero bytes");
  expect_part(idx_error("PK\3\4"), "two zero bytes");
  expect_part(idx_error(std::string("\0\0\x0d\1\0\0\0\0", 8)), "its type is 0xd; expected 0x8");
  expect_part(idx_error(std::string("\0\0\x08\0", 4)), "has no dimensions");
  expect_part(idx_error(std::string("\0\0\x08\3\0\0\0\1", 8)), "cut off");
  expect_part(idx_error(idx_bytes({3}, "ab")), "need more than the 2 bytes");
  expect_part(idx_error(idx_bytes({3}, "abcd")), "need 3 bytes, but 4 follow");
  expect_part(idx_error(idx_bytes({0xffffffff, 0xffffffff, 0xffffffff}, "abcd")), "need more than");
  expect_part(idx_error(idx_bytes({0, 5}, "a")), "need 0 bytes, but 1 follow");
}

}  // namespace
}  // namespace pareprop::data
