#include "pareprop/data/images/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::noise;

// Levels as they are: level / 255 in, level out.
ImageAugment plain_augment() {
  ImageAugment augment;
  augment.mean = {0.0f};
  augment.deviation = {1.0f / 255};
  return augment;
}

std::vector<float> rendered(const ImageAugment& augment, const View& view, const Image& image,
                            int channels, ImageSize input) {
  std::vector<float> out(static_cast<std::size_t>(channels * input.height * input.width), -1000);
  render(augment, view, image.size(), image, channels, input, out.data());
  return out;
}

TEST(CentreView, IsTheLargestPartOfTheShapeTimesTheShare) {
  ImageAugment augment;
  Box box = centre_view(augment, {100, 200}, {10, 10}).box;
  EXPECT_DOUBLE_EQ(box.left, 50);
  EXPECT_DOUBLE_EQ(box.top, 0);
  EXPECT_DOUBLE_EQ(box.height, 100);
  EXPECT_DOUBLE_EQ(box.width, 100);
  augment.centre_share = 0.5;
  box = centre_view(augment, {100, 200}, {10, 40}).box;
  EXPECT_DOUBLE_EQ(box.height, 25);
  EXPECT_DOUBLE_EQ(box.width, 100);
  EXPECT_DOUBLE_EQ(box.top, 37.5);
  EXPECT_DOUBLE_EQ(box.left, 50);
}

TEST(RandomView, ResizedHasAreasAndShapesInTheirRanges) {
  ImageAugment augment;
  augment.crop = Crop::resized;
  augment.flip = 0.5;
  int flips = 0;
  double smallest = 1, largest = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    CounterRandom random{1, i};
    const View view = random_view(augment, {300, 400}, {224, 224}, random);
    const Box& box = view.box;
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 300);
    ASSERT_LE(box.left + box.width, 400);
    const double area = box.height * box.width / (300 * 400);
    // Sides are rounded to whole pixels.
    ASSERT_GE(area, 0.078);
    ASSERT_GE(box.width / box.height, 0.74);
    ASSERT_LE(box.width / box.height, 1.35);
    smallest = std::min(smallest, area), largest = std::max(largest, area);
    flips += view.flip;
  }
  EXPECT_LT(smallest, 0.1);
  EXPECT_GT(largest, 0.9);
  EXPECT_NEAR(flips, 1000, 5 * std::sqrt(500));
}

TEST(RandomView, ThatCannotFitIsTheMiddle) {
  ImageAugment augment;
  augment.crop = Crop::resized;
  augment.min_area = 0.9;
  CounterRandom random{2};
  const Box box = random_view(augment, {1000, 10}, {7, 7}, random).box;
  EXPECT_DOUBLE_EQ(box.height, 10);
  EXPECT_DOUBLE_EQ(box.top, 495);
}

TEST(RandomView, PaddedMovesToEveryPlace) {
  ImageAugment augment;
  augment.crop = Crop::padded;
  augment.pad = 2;
  std::set<std::pair<int, int>> places;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    CounterRandom random{3, i};
    const View view = random_view(augment, {8, 8}, {8, 8}, random);
    EXPECT_LE(std::abs(view.down), 2);
    EXPECT_LE(std::abs(view.right), 2);
    EXPECT_FALSE(view.flip);
    places.insert({view.down, view.right});
  }
  EXPECT_EQ(places.size(), 25u);
}

TEST(SmallestSize, KeepsAsManyPixelsAsTheInputHas) {
  const View part{{0, 0, 100, 50}};
  EXPECT_EQ(smallest_size(part, {400, 400}, {50, 50}), (ImageSize{200, 400}));
  EXPECT_EQ(smallest_size(part, {400, 400}, {10, 10}), (ImageSize{40, 80}));
  EXPECT_EQ(smallest_size(part, {400, 400}, {300, 300}), (ImageSize{400, 400}));
}

TEST(Render, MovesThenMirrors) {
  const Image image{2, 3, 1, {1, 2, 3, 4, 5, 6}};
  const Box box{0, 0, 2, 3};
  EXPECT_EQ(rendered(plain_augment(), {box}, image, 1, {2, 3}),
            (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(rendered(plain_augment(), {box, 1, 0}, image, 1, {2, 3}),
            (std::vector<float>{0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(rendered(plain_augment(), {box, 0, -2}, image, 1, {2, 3}),
            (std::vector<float>{3, 0, 0, 6, 0, 0}));
  EXPECT_EQ(rendered(plain_augment(), {box, 0, 1, true}, image, 1, {2, 3}),
            (std::vector<float>{2, 1, 0, 5, 4, 0}));
}

TEST(Render, NormalisesEachColourIntoItsPlane) {
  const Image image{1, 2, 3, {0, 51, 102, 255, 204, 153}};
  ImageAugment augment;
  augment.mean = {0.5f, 0.2f, 0.1f};
  augment.deviation = {0.5f, 0.25f, 0.1f};
  const auto out = rendered(augment, {{0, 0, 1, 2}}, image, 3, {1, 2});
  const std::vector<float> expected{-1, 1, 0, 2.4f, 3, 5};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[i], expected[i], 1e-5) << i;
}

TEST(Render, ConvertsBetweenGreyAndColours) {
  const Image grey{1, 1, 1, {100}}, colour{1, 1, 3, {200, 100, 50}};
  for (const float level : rendered(plain_augment(), {{0, 0, 1, 1}}, grey, 3, {1, 1})) {
    EXPECT_NEAR(level, 100, 1e-3);
  }
  EXPECT_NEAR(rendered(plain_augment(), {{0, 0, 1, 1}}, colour, 1, {1, 1})[0],
              0.299 * 200 + 0.587 * 100 + 0.114 * 50, 1e-3);
  ImageAugment augment;
  augment.mean = {1, 0, 0};
  augment.deviation = {1, 1, 1};
  EXPECT_NEAR(rendered(augment, {{0, 0, 1, 1}}, grey, 1, {1, 1})[0], 100 / 255.0 - 0.299, 1e-5);
}

// A view chosen for the full image shows the same of one that was decoded smaller.
TEST(Render, OfASmallerDecodingShowsTheSamePart) {
  const Image full = testing::slope(160, 240, 3), half = testing::slope(80, 120, 3);
  const View view{{40, 60, 80, 90}, 0, 0, true};
  std::vector<float> a(3 * 16 * 16), b(a);
  render(plain_augment(), view, full.size(), full, 3, {16, 16}, a.data());
  render(plain_augment(), view, full.size(), half, 3, {16, 16}, b.data());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 2.0) << i;
}

TEST(Render, CutsOffWhatBicubicOvershoots) {
  const Image edge{1, 4, 1, {0, 0, 255, 255}};
  for (const float level : rendered(plain_augment(), {{0, 0, 1, 4}}, edge, 1, {1, 16})) {
    EXPECT_GE(level, 0.0f);
    EXPECT_LE(level, 255.0f);
  }
}

TEST(EraseRandomly, PutsNoiseIntoOneRectangleOfAllColours) {
  ImageAugment augment;
  augment.erase = 0.5;
  int erased_images = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::vector<float> out(3 * 32 * 32, 9.0f);
    CounterRandom random{4, i};
    erase_randomly(augment, 3, {32, 32}, random, out.data());
    int top = 32, bottom = -1, left = 32, right = -1, count = 0;
    for (int p = 0; p < 1024; ++p) {
      const bool erased = out[static_cast<std::size_t>(p)] != 9.0f;
      for (int c = 1; c < 3; ++c) {
        ASSERT_EQ(out[static_cast<std::size_t>(c * 1024 + p)] != 9.0f, erased);
      }
      if (!erased) continue;
      ++count;
      top = std::min(top, p / 32), bottom = std::max(bottom, p / 32);
      left = std::min(left, p % 32), right = std::max(right, p % 32);
    }
    if (count == 0) continue;
    ++erased_images;
    EXPECT_EQ(count, (bottom - top + 1) * (right - left + 1));
    EXPECT_GE(count, 0.015 * 1024);
    EXPECT_LE(count, 0.36 * 1024);
  }
  EXPECT_NEAR(erased_images, 200, 5 * 10);
}

TEST(CheckAugment, NamesWhatIsOutOfRange) {
  EXPECT_NO_THROW(check_augment({}));
  const auto error = [](auto&& change) {
    ImageAugment augment;
    change(augment);
    return message_of<std::invalid_argument>([&] { check_augment(augment); });
  };
  expect_part(error([](auto& a) { a.pad = -1; }), "pad");
  expect_part(error([](auto& a) { a.min_area = 0; }), "min_area");
  expect_part(error([](auto& a) { a.max_area = NAN; }), "max_area");
  expect_part(error([](auto& a) { a.min_shape = 2; }), "min_shape");
  expect_part(error([](auto& a) { a.flip = 1.1; }), "flip");
  expect_part(error([](auto& a) { a.erase_max_area = 0.01; }), "erase_min_area");
  expect_part(error([](auto& a) { a.erase_min_shape = 0; }), "erase_min_shape");
  expect_part(error([](auto& a) { a.centre_share = 0; }), "centre_share");
  expect_part(error([](auto& a) { a.mean = {0, 0}; }), "one or three values");
  expect_part(error([](auto& a) { a.deviation = {1, 0, 1}; }), "more than 0");
}

}  // namespace
}  // namespace pareprop::data
