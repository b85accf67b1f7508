#include "pareprop/io/checksum.h"

#include <gtest/gtest.h>

#include <system_error>

#include "tests/io/temporary_folder.h"

namespace pareprop::io {
namespace {

using testing::put;
using testing::TemporaryFolder;

std::string sum_of(std::string_view text) {
  Checksum sum;
  sum.update(text);
  return hex(sum.value());
}

TEST(Checksum, IsXxh64) {
  EXPECT_EQ(sum_of(""), "ef46db3751d8e999");
  EXPECT_EQ(sum_of("a"), "d24ec4f1a98c6e5b");
  EXPECT_EQ(sum_of("abc"), "44bc2cf5ad770999");
  EXPECT_EQ(sum_of("abcdefghijklmnopqrstuvwxyz12345"), "467605901b01d6f6");
  EXPECT_EQ(sum_of("Nobody inspects the spammish repetition"), "fbcea83c8a378bf1");
}

TEST(Checksum, DoesNotDependOnHowTheBytesAreDivided) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (const std::size_t second : {std::size_t{0}, std::size_t{1}, std::size_t{31}}) {
      Checksum sum;
      const std::string_view all = text;
      sum.update(all.substr(0, first));
      sum.update(all.substr(first).substr(0, second));
      sum.update(std::string_view());
      sum.update(all.substr(std::min(text.size(), first + second)));
      ASSERT_EQ(hex(sum.value()), sum_of(text)) << first << " " << second;
    }
  }
}

TEST(Checksum, ChangesWithEveryBitOfAFile) {
  const TemporaryFolder folder;
  std::string text(100, 'x');
  put(folder / "a", text);
  const std::uint64_t whole = file_checksum(folder / "a");
  EXPECT_EQ(hex(whole), sum_of(text));
  for (std::size_t i = 0; i < 8 * text.size(); ++i) {
    std::string flipped = text;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
    EXPECT_NE(sum_of(flipped), hex(whole));
  }
}

TEST(Checksum, OfAFileThatCannotBeReadIsAnError) {
  const TemporaryFolder folder;
  EXPECT_THROW(file_checksum(folder / "none"), std::system_error);
  EXPECT_EQ(
      io::testing::message_of<std::runtime_error>([&] { file_checksum(folder.path()); }),
      "cannot read '" + folder.path().string() + "': it is a folder; give the name of a file");
}

}  // namespace
}  // namespace pareprop::io
