#include "pareprop/data/images/idx_images.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
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
  expect_part(error<std::invalid_argument>(), "are 2 x 2 pixels, the test images 4 x 1");
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
