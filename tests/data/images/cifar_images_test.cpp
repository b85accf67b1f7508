#include "pareprop/data/images/cifar_images.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/data/expect_part.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
using pareprop::data::testing::expect_part;

constexpr std::size_t kPlane = 1024;

// A record whose red is its row, green its column, blue all `blue`.
std::string record(const std::string& labels, char blue) {
  std::string bytes = labels;
  for (std::size_t p = 0; p < kPlane; ++p) bytes += static_cast<char>(p / 32);
  for (std::size_t p = 0; p < kPlane; ++p) bytes += static_cast<char>(p % 32);
  return bytes + std::string(kPlane, blue);
}

TEST(CifarTen, IsReadInTheOrderOfItsFiles) {
  const TemporaryFolder folder;
  put(folder / "data_batch_2.bin", record("\3", 30));
  put(folder / "data_batch_1.bin", record("\1", 10) + record("\2", 20));
  put(folder / "test_batch.bin", record("\x09", 90));
  const ImageHalves halves = open_cifar(Cifar::ten, folder.path());
  ASSERT_EQ(halves.train->size(), 3);
  ASSERT_EQ(halves.test->size(), 1);
  EXPECT_EQ(halves.train->class_names()[3], "cat");
  EXPECT_EQ(halves.test->label(0), 9);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(halves.train->label(i), i + 1);
    const Image image = halves.train->load(i);
    ASSERT_EQ(image.pixels.size(), 3 * kPlane);
    const std::size_t at = (5 * 32 + 7) * 3;
    EXPECT_EQ(image.pixels[at], 5);
    EXPECT_EQ(image.pixels[at + 1], 7);
    EXPECT_EQ(image.pixels[at + 2], 10 * (i + 1));
  }
}

TEST(CifarHundred, TakesTheFineLabelAndTheNamesBesideIt) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "cifar-100-binary");
  const auto inside = folder.path() / "cifar-100-binary";
  put(inside / "train.bin", record("\x13\x63", 1) + record(std::string("\0\5", 2), 2));
  put(inside / "test.bin", record("\1\2", 1));
  std::string names;
  for (int i = 0; i < 100; ++i) names += "class " + std::to_string(i) + "\r\n";
  put(inside / "fine_label_names.txt", names);
  const ImageHalves halves = open_cifar(Cifar::hundred, folder.path());
  EXPECT_EQ(halves.train->label(0), 99);
  EXPECT_EQ(halves.train->label(1), 5);
  EXPECT_EQ(halves.train->class_names()[99], "class 99");
}

TEST(Cifar, RefusesWhatItIsNot) {
  const TemporaryFolder folder;
  const auto error = [&](auto kind) {
    return message_of<std::runtime_error>([&] { open_cifar(kind, folder.path()); });
  };
  expect_part(message_of<std::invalid_argument>([&] { open_cifar(Cifar::hundred, folder.path()); }),
              "expected train.bin and test.bin");
  put(folder / "data_batch_1", "pickled");
  put(folder / "test_batch.bin", record("\1", 1));
  expect_part(message_of<std::invalid_argument>([&] { open_cifar(Cifar::ten, folder.path()); }),
              "not the version for Python");
  put(folder / "data_batch_1.bin", record("\1", 1) + "x");
  expect_part(error(Cifar::ten),
              "data_batch_1.bin': it has 3074 bytes; expected a multiple of the 3073");
  put(folder / "data_batch_1.bin", "");
  expect_part(error(Cifar::ten), "it has 0 bytes");
  put(folder / "data_batch_1.bin", record("\1", 1) + record("\x0a", 1));
  expect_part(error(Cifar::ten), "the label of record 1 is 10; expected 0 to 9");
  put(folder / "train.bin", record("\x14\1", 1));
  put(folder / "test.bin", record("\1\1", 1));
  expect_part(error(Cifar::hundred), "the label of record 0 is 20; expected 0 to 19");
}

}  // namespace
}  // namespace pareprop::data
