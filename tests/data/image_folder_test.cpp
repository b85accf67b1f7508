#include "pareprop/data/image_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "tests/data/expect_part.h"
#include "tests/data/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

namespace fs = std::filesystem;
using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::jpeg_bytes;
using pareprop::data::testing::noise;
using pareprop::data::testing::png_bytes;
using pareprop::data::testing::slope;

void add(const fs::path& file, const std::string& bytes) {
  fs::create_directories(file.parent_path());
  put(file, bytes);
}

std::string folder_error(const fs::path& folder) {
  return message_of<std::invalid_argument>([&] { open_image_folder(folder); });
}

TEST(ImageFolder, WithTrainAndValHasSortedClassesAndFiles) {
  const TemporaryFolder folder;
  const Image image = noise(4, 6, 3, 1);
  add(folder / "train/zebra/b.png", png_bytes(image));
  add(folder / "train/zebra/a.JPG", jpeg_bytes(slope(16, 24, 1)));
  add(folder / "train/ant/deeper/c.jpeg", jpeg_bytes(slope(8, 8, 3)));
  add(folder / "train/ant/notes.txt", "not an image");
  add(folder / "train/ant/.hidden.png", "not looked at");
  add(folder / "train/.cache/x.png", "not looked at");
  add(folder / "val/zebra/d.png", png_bytes(image));
  const ImageHalves halves = open_image_folder(folder.path());
  EXPECT_EQ(halves.train->class_names(), (std::vector<std::string>{"ant", "zebra"}));
  EXPECT_EQ(halves.test->class_names(), halves.train->class_names());
  ASSERT_EQ(halves.train->size(), 3);
  ASSERT_EQ(halves.test->size(), 1);
  EXPECT_EQ(halves.train->name(0), (folder / "train/ant/deeper/c.jpeg").string());
  EXPECT_EQ(halves.train->name(1), (folder / "train/zebra/a.JPG").string());
  EXPECT_EQ(halves.train->label(0), 0);
  EXPECT_EQ(halves.train->label(2), 1);
  EXPECT_EQ(halves.test->label(0), 1);
  EXPECT_EQ(halves.train->load(2), image);
  EXPECT_EQ(halves.train->load(1,
                               [](ImageSize) {
                                 return ImageSize{8, 12};
                               })
                .size(),
            (ImageSize{8, 12}));
}

// One of the classes may be trains.
TEST(ImageFolder, WithTrainAloneTakesItForAClass) {
  const TemporaryFolder folder;
  for (int i = 0; i < 60; ++i) {
    add(folder / ("train/" + std::to_string(i) + ".png"), "");
    add(folder / ("bus/" + std::to_string(i) + ".png"), "");
  }
  EXPECT_EQ(open_image_folder(folder.path()).train->class_names(),
            (std::vector<std::string>{"bus", "train"}));
}

TEST(ImageFolder, HoldsOutFilesByTheirNameAlone) {
  const TemporaryFolder folder;
  const auto half_of_each = [&] {
    const ImageHalves halves = open_image_folder(folder.path());
    std::map<std::string, bool> held_out;
    for (std::int64_t i = 0; i < halves.train->size(); ++i) held_out[halves.train->name(i)] = false;
    for (std::int64_t i = 0; i < halves.test->size(); ++i) held_out[halves.test->name(i)] = true;
    EXPECT_EQ(held_out.size(),
              static_cast<std::size_t>(halves.train->size() + halves.test->size()));
    return held_out;
  };
  for (int i = 0; i < 1000; ++i) add(folder / ("a/" + std::to_string(i) + ".png"), "");
  const auto before = half_of_each();
  ASSERT_EQ(before.size(), 1000u);
  const auto held_out =
      std::count_if(before.begin(), before.end(), [](auto& e) { return e.second; });
  EXPECT_GE(held_out, 70);
  EXPECT_LE(held_out, 130);
  for (int i = 0; i < 100; ++i) add(folder / ("b/" + std::to_string(i) + ".png"), "");
  const auto after = half_of_each();
  ASSERT_EQ(after.size(), 1100u);
  for (const auto& [name, test] : before) EXPECT_EQ(after.at(name), test) << name;
}

TEST(ImageFolder, ThatIsUnreadableOrEmptySaysSo) {
  const TemporaryFolder folder;
  expect_part(folder_error(folder.path()),
              "has no images: expected .jpg, .jpeg or .png files in one");
  add(folder / "a.png", "");
  expect_part(folder_error(folder.path()), "has no images");
  add(folder / "cats/a.png", "");
  expect_part(folder_error(folder.path()), "has 1 images, too few to hold out");
  add(folder / "train/cats/a.png", "");
  fs::create_directories(folder / "val");
  expect_part(folder_error(folder.path()), "val' has no images");
  add(folder / "val/dogs/a.png", "");
  expect_part(folder_error(folder.path()), "has the class 'dogs', which");
  expect_part(message_of<std::invalid_argument>([&] { open_image_folder(folder.path(), 1.0); }),
              "expected more than 0, less than 1");
}

TEST(ImageFolder, NamesTheFileThatCannotBeRead) {
  const TemporaryFolder folder;
  add(folder / "train/cats/a.png", "no PNG");
  add(folder / "val/cats/a.png", "");
  const ImageHalves halves = open_image_folder(folder.path());
  expect_part(message_of<std::runtime_error>([&] { halves.train->load(0); }),
              "train/cats/a.png': the file is neither a JPEG nor a PNG");
  fs::remove(folder / "val/cats/a.png");
  expect_part(message_of<std::runtime_error>([&] { halves.test->load(0); }), "val/cats/a.png");
}

}  // namespace
}  // namespace pareprop::data
