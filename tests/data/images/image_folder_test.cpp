#include "pareprop/data/images/image_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>

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
  expect_part(folder_error(folder.path()), "has 1 images, too few to use");
  add(folder / "train/cats/a.png", "");
  fs::create_directories(folder / "val");
  expect_part(folder_error(folder.path()), "val' has no images");
  add(folder / "val/dogs/a.png", "");
  expect_part(folder_error(folder.path()), "has the class 'dogs', but");
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

// Permissions do not count for root: as another user, where the test is root's.
template <class Run>
void without_root(Run&& run) {
  const bool is_root = geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  if (is_root) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  run();
  if (is_root) {
    ASSERT_EQ(seteuid(0), 0);
  }
}

TEST(ImageFolder, WhatCannotBeReadIsLeftOutAndListed) {
  const TemporaryFolder folder;
  for (const char* half : {"train", "val"}) {
    for (const char* name : {"ant", "bee"}) {
      add(folder / half / name / "a.png", png_bytes(noise(4, 4, 3, 1)));
    }
  }
  add(folder / "train/ant/locked/b.png", png_bytes(noise(4, 4, 3, 2)));
  fs::create_symlink("self.png", folder / "train/ant/self.png");
  fs::create_symlink("self", folder / "train/self");
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(folder / "train/ant/locked", fs::perms::none);
  without_root([&] {
    const ImageHalves halves = open_image_folder(folder.path());
    EXPECT_EQ(halves.train->left_out(),
              std::vector<std::string>{"cannot read '" + (folder / "train/ant/locked").string() +
                                       "': Permission denied"});
    EXPECT_TRUE(halves.test->left_out().empty());
    EXPECT_EQ(halves.train->class_names(), (std::vector<std::string>{"ant", "bee"}));
    // The link to itself is an image that cannot be read, like any damaged one.
    ASSERT_EQ(halves.train->size(), 3);
    EXPECT_EQ(message_of<std::runtime_error>([&] { halves.train->load(1); }),
              "cannot read '" + (folder / "train/ant/self.png").string() +
                  "': Too many levels of symbolic links");
  });
  fs::permissions(folder / "train/ant/locked", fs::perms::all);
}

TEST(ImageFolder, ClassNamesAreUtf8WhateverTheFoldersAreCalled) {
  const TemporaryFolder folder;
  for (const char* half : {"train", "val"}) {
    for (const char* name : {"caf\xe9", "\xc3\xa9t\xc3\xa9", "a\x1b[31m"}) {
      add(folder / half / name / "a.png", png_bytes(noise(4, 4, 3, 1)));
    }
  }
  const ImageHalves halves = open_image_folder(folder.path());
  EXPECT_EQ(halves.train->class_names(),
            (std::vector<std::string>{"a\\x1b[31m", "caf\\xe9", "\xc3\xa9t\xc3\xa9"}));
  EXPECT_EQ(halves.train->load(1), noise(4, 4, 3, 1));
}

TEST(ImageFolder, ImagesThatVanishOrShrinkAreErrorsThatNameThem) {
  const TemporaryFolder folder;
  for (const char* name : {"ant/a.png", "bee/b.png"}) {
    add(folder / "train" / name, png_bytes(noise(64, 64, 3, 1)));
    add(folder / "val" / name, png_bytes(noise(64, 64, 3, 1)));
  }
  const ImageHalves halves = open_image_folder(folder.path());
  fs::remove(folder / "train/ant/a.png");
  fs::resize_file(folder / "train/bee/b.png", 5000);
  EXPECT_EQ(
      message_of<std::runtime_error>([&] { halves.train->load(0); }),
      "cannot read '" + (folder / "train/ant/a.png").string() + "': No such file or directory");
  EXPECT_EQ(message_of<std::runtime_error>([&] {
              halves.train->load(1);
            }).find("cannot read '" + (folder / "train/bee/b.png").string() + "': "),
            0U);
}

// Rewritten in place again and again while they are read: a mapped file ends the process (SIGBUS).
TEST(ImageFolder, ImagesThatAreRewrittenWhileTheyAreReadAreReadOrRefused) {
  const TemporaryFolder folder;
  const Image image = noise(64, 64, 3, 1);
  const std::string bytes = png_bytes(image);
  for (const char* name : {"train/ant/a.png", "train/bee/b.png", "val/ant/a.png"}) {
    add(folder / name, bytes);
  }
  const ImageHalves halves = open_image_folder(folder.path());
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) {
      std::ofstream file(folder / "train/ant/a.png", std::ios::binary);
      file << bytes;
    }
  });
  int whole = 0;
  for (int i = 0; i < 3000 || (whole == 0 && i < 100000); ++i) {
    try {
      whole += halves.train->load(0) == image ? 1 : 0;
    } catch (const std::runtime_error&) {
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace pareprop::data
