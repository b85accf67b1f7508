#include "pareprop/data/images/open_images.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <stdexcept>

#include "pareprop/data/images/digits.h"
#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;
using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::idx_bytes;
using pareprop::data::testing::noise;
using pareprop::data::testing::png_bytes;

std::string open_error(const std::string& spec) {
  return message_of<std::invalid_argument>([&] { open_images(spec); });
}

TEST(OpenImages, DigitsAreTheBuiltInOnes) {
  const ImageData data = open_images("digits");
  EXPECT_EQ(data.train->size() + data.test->size(), 1797);
  EXPECT_EQ(data.test->size(), 1797 / 6);
  EXPECT_EQ(data.size, (ImageSize{8, 8}));
  EXPECT_EQ(data.channels, 1);
  EXPECT_EQ(data.augment.flip, 0.0);
  EXPECT_NEAR(data.augment.mean.at(0), 561718.0 / (1797 * 64 * 16), 0.005);
  const LabelledImages digits = pareprop::data::digits();
  const Image sixth = data.test->load(0);
  EXPECT_EQ(data.test->label(0), digits.labels[5].item<std::int64_t>());
  const at::Tensor pixels = digits.images[5].reshape({64}).mul(255).round();
  for (int p = 0; p < 64; ++p) {
    ASSERT_EQ(sixth.pixels[static_cast<std::size_t>(p)], pixels[p].item<float>());
  }
}

TEST(OpenImages, SyntheticImagesAreAsAskedFor) {
  OpenImagesOptions options;
  options.synthetic = {
      .height = 6, .width = 9, .channels = 3, .classes = 4, .train = 50, .test = 5};
  const ImageData data = open_images("synthetic", options);
  EXPECT_EQ(data.size, (ImageSize{6, 9}));
  EXPECT_EQ(data.train->size(), 50);
  EXPECT_EQ(data.train->load(3), data.train->load(3));
  EXPECT_NE(data.train->load(3), data.train->load(4));
  EXPECT_NE(data.train->load(3), data.test->load(3));
  EXPECT_EQ(data.train->load(3).pixels.size(), 6u * 9 * 3);
  for (int i = 0; i < 50; ++i) EXPECT_LT(data.train->label(i), 4);
  options.synthetic.classes = 0;
  expect_part(message_of<std::invalid_argument>([&] { open_images("synthetic", options); }),
              "classes is 0; expected at least 1");
}

TEST(OpenImages, IdxLevelsAreMeasured) {
  const TemporaryFolder folder;
  put(folder / "train-images-idx3-ubyte", idx_bytes({2, 1, 2}, {0, 102, char(204), 102}));
  put(folder / "train-labels-idx1-ubyte", idx_bytes({2}, {0, 1}));
  put(folder / "t10k-images-idx3-ubyte", idx_bytes({1, 1, 2}, "ab"));
  put(folder / "t10k-labels-idx1-ubyte", idx_bytes({1}, {1}));
  const ImageData data = open_images("idx:" + folder.path().string());
  EXPECT_EQ(data.size, (ImageSize{1, 2}));
  EXPECT_NEAR(data.augment.mean.at(0), 0.4, 1e-6);
  EXPECT_NEAR(data.augment.deviation.at(0), std::sqrt(0.08), 1e-6);
  put(folder / "train-labels-idx1-ubyte", idx_bytes({2}, {1, 1}));
  expect_part(open_error("idx:" + folder.path().string()),
              "all training images have the class '1'; expected at least two classes");
}

TEST(OpenImages, AFolderMayStandAlone) {
  const TemporaryFolder folder;
  for (const char* file : {"train/a/1.png", "train/b/1.png", "val/a/1.png"}) {
    fs::create_directories((folder / file).parent_path());
    put(folder / file, png_bytes(noise(3, 3, 3, 1)));
  }
  for (const std::string& spec : {folder.path().string(), "folder:" + folder.path().string()}) {
    const ImageData data = open_images(spec);
    EXPECT_EQ(data.train->size(), 2);
    EXPECT_EQ(data.size, ImageSize{});
    EXPECT_EQ(data.augment.crop, Crop::resized);
  }
  fs::remove_all(folder / "train/b");
  expect_part(open_error(folder.path().string()), "all training images have the class 'a'");
}

TEST(OpenImages, WithoutSuchADataSetSaysWhatThereIs) {
  expect_part(open_error("imagenet"), "there is no data set 'imagenet'; expected one of: digits");
  expect_part(open_error(""), "there is no data set ''");
  expect_part(open_error("digits:/tmp"), "there is no data set 'digits:/tmp'");
  expect_part(open_error("cifar10"), "expected NAME:FOLDER");
  expect_part(open_error("cifar100:/no/such"), "'/no/such' is not a folder");
  expect_part(open_error("fashion-mnist:/no/such"), "'/no/such' is not a folder");
}

// Known of the data set: 6000 and 1000 images of each class, mean 0.2860 and deviation 0.3530.
TEST(OpenImages, FashionMnistOfDebianIsRead) {
  if (!fs::exists("/usr/share/datasets/fashion-mnist")) {
    GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  }
  const ImageData data = open_images("fashion-mnist");
  EXPECT_EQ(data.train->size(), 60000);
  EXPECT_EQ(data.test->size(), 10000);
  EXPECT_EQ(data.size, (ImageSize{28, 28}));
  EXPECT_EQ(data.channels, 1);
  EXPECT_NEAR(data.augment.mean.at(0), 0.2860, 5e-5);
  EXPECT_NEAR(data.augment.deviation.at(0), 0.3530, 5e-5);
  EXPECT_EQ(data.train->class_names().at(9), "Ankle boot");
  std::array<int, 10> train{}, test{};
  for (int i = 0; i < 60000; ++i) ++train.at(static_cast<std::size_t>(data.train->label(i)));
  for (int i = 0; i < 10000; ++i) ++test.at(static_cast<std::size_t>(data.test->label(i)));
  for (const int count : train) EXPECT_EQ(count, 6000);
  for (const int count : test) EXPECT_EQ(count, 1000);
  EXPECT_EQ(data.train->label(0), 9);
}

}  // namespace
}  // namespace pareprop::data
