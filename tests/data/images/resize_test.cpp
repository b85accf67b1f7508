#include "pareprop/data/images/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "tests/data/expect_part.h"
#include "tests/data/images/image_files.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::expect_part;
using pareprop::data::testing::noise;

Box whole(const Image& image) {
  return {0, 0, static_cast<double>(image.height), static_cast<double>(image.width)};
}

Image rounded(const FloatImage& image) {
  Image bytes{image.height, image.width, image.channels, {}};
  for (const float level : image.pixels) {
    bytes.pixels.push_back(static_cast<std::uint8_t>(std::lround(std::clamp(level, 0.0f, 255.0f))));
  }
  return bytes;
}

// A comparison with Pillow is in resize_python_test.py.
TEST(Resize, ToHalfByTheTriangleIsByHand) {
  // Weights 1 3 3 1 over 8, at the ends 3 3 1 over 7.
  const Image row{1, 6, 1, {0, 80, 160, 40, 200, 240}};
  const FloatImage half = resize(row, whole(row), {1, 3}, Filter::bilinear);
  ASSERT_EQ(half.pixels.size(), 3u);
  EXPECT_NEAR(half.pixels[0], (3 * 0 + 3 * 80 + 160) / 7.0, 1e-4);
  EXPECT_NEAR(half.pixels[1], (80 + 3 * 160 + 3 * 40 + 200) / 8.0, 1e-4);
  EXPECT_NEAR(half.pixels[2], (40 + 3 * 200 + 3 * 240) / 7.0, 1e-4);
  const Image column{6, 1, 1, row.pixels};
  EXPECT_EQ(resize(column, whole(column), {3, 1}, Filter::bilinear).pixels, half.pixels);
}

TEST(Resize, ToTwiceByTheCubicIsByHand) {
  const Image row{1, 4, 1, {10, 50, 20, 90}};
  const FloatImage twice = resize(row, whole(row), {1, 8}, Filter::bicubic);
  // The fourth pixel lies a quarter behind the second, where Keys' weights are these over 128.
  EXPECT_NEAR(twice.pixels[3], (-9 * 10 + 111 * 50 + 29 * 20 - 3 * 90) / 128.0, 1e-4);
}

TEST(Resize, ToTheSameSizeChangesNothing) {
  const Image image = noise(9, 7, 3, 1);
  for (const Filter filter : {Filter::bilinear, Filter::bicubic}) {
    EXPECT_EQ(rounded(resize(image, whole(image), image.size(), filter)), image);
  }
}

// The path that computes and the one that copies.
TEST(Resize, OfAPartInItsSizeIsThatPart) {
  const Image image = noise(9, 7, 3, 2);
  const Image part = rounded(resize(image, {2, 3, 4, 2}, {4, 2}, Filter::bicubic));
  for (int y = 0; y < 4; ++y) {
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(part.pixels[static_cast<std::size_t>(y * 6 + i)],
                image.pixels[static_cast<std::size_t>((y + 2) * 21 + 9 + i)]);
    }
  }
}

TEST(Resize, TakesFloatsAsWellAsBytes) {
  const Image image = noise(20, 31, 3, 3);
  FloatImage levels{20, 31, 3, {image.pixels.begin(), image.pixels.end()}};
  EXPECT_EQ(resize(levels, {1, 2.5, 15, 20}, {8, 9}, Filter::bicubic).pixels,
            resize(image, {1, 2.5, 15, 20}, {8, 9}, Filter::bicubic).pixels);
}

TEST(Resize, KeepsAnEvenAreaEven) {
  Image image = noise(33, 47, 1, 4);
  for (auto& level : image.pixels) level = 77;
  for (const ImageSize size : {ImageSize{5, 100}, ImageSize{32, 46}, ImageSize{1, 1}}) {
    for (const float level : resize(image, whole(image), size, Filter::bicubic).pixels) {
      ASSERT_NEAR(level, 77, 1e-3);
    }
  }
}

TEST(Resize, RefusesPartsOutsideAndEmptySizes) {
  const Image image = noise(4, 5, 1, 5);
  const auto error = [&](const Box& box, ImageSize size) {
    return message_of<std::invalid_argument>([&] { resize(image, box, size, Filter::bilinear); });
  };
  for (const Box& box : {Box{-1, 0, 2, 2}, Box{0, -1, 2, 2}, Box{3, 0, 2, 2}, Box{0, 4, 2, 2},
                         Box{0, 0, 0, 2}, Box{0, 0, 2, -1}}) {
    expect_part(error(box, {2, 2}), "expected a part of the image");
  }
  expect_part(error({0, 0, 2, 2}, {0, 2}), "of an image of 5 x 4 to 2 x 0");
}

}  // namespace
}  // namespace pareprop::data
