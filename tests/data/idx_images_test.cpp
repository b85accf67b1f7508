#include "pareprop/data/idx_images.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "pareprop/data/gzip.h"
#include "pareprop/data/idx.h"
#include "tests/data/expect_part.h"
#include "tests/data/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::gzip_bytes;
using pareprop::data::testing::idx_bytes;
using ::testing::Test;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

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

TEST(Gunzip, UnpacksOneAndSeveralMembers) {
  const std::string content(300000, 'x');
  const auto unpack = [](const std::string& packed, std::size_t limit) {
    const auto bytes = gunzip(bytes_of(packed), limit);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(unpack(gzip_bytes(content), content.size()), content);
  EXPECT_EQ(unpack(gzip_bytes(content) + gzip_bytes("more"), 1 << 20), content + "more");
  EXPECT_EQ(unpack(gzip_bytes(""), 0), "");
}

TEST(Gunzip, RefusesDamageExcessAndCutOff) {
  const std::string content(300000, 'x');
  const std::string packed = gzip_bytes(content);
  const auto error = [](const std::string& bytes, std::size_t limit = 1 << 20) {
    return message_of<std::runtime_error>([&] { gunzip(bytes_of(bytes), limit); });
  };
  expect_part(error(packed, content.size() - 1), "unpacks to more than 299999 bytes");
  expect_part(error(packed.substr(0, packed.size() - 1)), "cut off");
  expect_part(error(packed.substr(0, 10)), "cut off");
  expect_part(error(packed + "x"), "followed by other bytes");
  std::string damaged = packed;
  damaged[packed.size() - 6] = static_cast<char>(damaged[packed.size() - 6] + 1);  // check sum
  expect_part(error(damaged), "damaged");
}

class IdxFolder : public Test {
 protected:
  void SetUp() override {
    put(folder_ / "train-images-idx3-ubyte", idx_bytes({3, 2, 2}, "abcdefghijkl"));
    put(folder_ / "train-labels-idx1-ubyte", idx_bytes({3}, {0, 2, 1}));
    put(folder_ / "t10k-images-idx3-ubyte.gz", gzip_bytes(idx_bytes({1, 2, 2}, "mnop")));
    put(folder_ / "t10k-labels-idx1-ubyte.gz", gzip_bytes(idx_bytes({1}, {2})));
  }
  template <class E>
  std::string error() const {
    return message_of<E>([&] { open_idx_images(folder_.path()); });
  }

  TemporaryFolder folder_;
};

TEST_F(IdxFolder, IsReadPlainAndPacked) {
  const ImageHalves halves = open_idx_images(folder_.path());
  ASSERT_EQ(halves.train->size(), 3);
  ASSERT_EQ(halves.test->size(), 1);
  EXPECT_EQ(halves.train->label(1), 2);
  EXPECT_EQ(halves.train->load(1), (Image{2, 2, 1, {'e', 'f', 'g', 'h'}}));
  EXPECT_EQ(halves.test->load(0), (Image{2, 2, 1, {'m', 'n', 'o', 'p'}}));
  EXPECT_EQ(halves.train->class_names(), (std::vector<std::string>{"0", "1", "2"}));
}

TEST_F(IdxFolder, MayHaveBothFormsAndOtherNames) {
  put(folder_ / "train-images-idx3-ubyte.gz", "not looked at");
  std::filesystem::rename(folder_ / "t10k-images-idx3-ubyte.gz",
                          folder_ / "emnist-digits-test-images-idx3-ubyte.gz");
  EXPECT_EQ(open_idx_images(folder_.path()).test->size(), 1);
}

TEST_F(IdxFolder, WithoutAFileSaysWhich) {
  std::filesystem::remove(folder_ / "train-labels-idx1-ubyte");
  expect_part(error<std::invalid_argument>(), "has no file train-labels-idx*-ubyte");
}

TEST_F(IdxFolder, WithTwoDataSetsIsRefused) {
  put(folder_ / "emnist-train-images-idx3-ubyte", "x");
  expect_part(error<std::invalid_argument>(), "several files train-images");
}

TEST_F(IdxFolder, WithFilesThatDisagreeIsRefused) {
  put(folder_ / "train-labels-idx1-ubyte", idx_bytes({2}, {0, 1}));
  expect_part(error<std::invalid_argument>(), "2 labels for 3 images");
  put(folder_ / "train-labels-idx1-ubyte", idx_bytes({3}, {0, 1, 1}));
  expect_part(error<std::invalid_argument>(), "label of image 0 is 2; expected 0 to 1");
  SetUp();
  put(folder_ / "t10k-images-idx3-ubyte.gz", gzip_bytes(idx_bytes({1, 1, 4}, "mnop")));
  expect_part(error<std::invalid_argument>(), "are 2 x 2 pixels, those to test with 4 x 1");
}

TEST_F(IdxFolder, WithADamagedFileNamesIt) {
  put(folder_ / "train-images-idx3-ubyte", idx_bytes({3}, "abc"));
  expect_part(error<std::runtime_error>(), "train-images-idx3-ubyte': it has 1 dimensions");
  put(folder_ / "train-images-idx3-ubyte", idx_bytes({1, 1, 20000}, std::string(20000, 'x')));
  expect_part(error<std::runtime_error>(), "20000 x 1 pixels; expected at most 16384");
  put(folder_ / "train-images-idx3-ubyte", idx_bytes({0, 2, 2}, ""));
  put(folder_ / "train-labels-idx1-ubyte", idx_bytes({0}, ""));
  expect_part(error<std::invalid_argument>(), "there is no image in it");
}

}  // namespace
}  // namespace pareprop::data
