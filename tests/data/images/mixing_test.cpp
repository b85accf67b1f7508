#include "pareprop/data/images/mixing.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "tests/data/expect_part.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::data {
namespace {

using io::testing::message_of;
using pareprop::data::testing::expect_part;

TEST(DrawBeta, HasItsMoments) {
  for (const double alpha : {0.2, 0.8, 1.0, 3.0}) {
    double sum = 0, squares = 0;
    constexpr int kDraws = 50000;
    CounterRandom random{1};
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw_beta(alpha, random);
      ASSERT_GE(x, 0.0);
      ASSERT_LE(x, 1.0);
      sum += x, squares += (x - 0.5) * (x - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    // (x - 1/2)^2 is at most 1/4, so its deviation at most sqrt(variance) / 2.
    EXPECT_NEAR(squares / kDraws, variance, 5 * std::sqrt(variance / kDraws) / 2) << alpha;
  }
}

TEST(DrawMix, IsByProbabilityAndShare) {
  int kept = 0, cut = 0, blended = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    CounterRandom random{2, i};
    const Mix mix = draw_mix({.mixup = 1, .cutmix = 1, .probability = 0.5, .cutmix_share = 0.25},
                             {64, 64}, random);
    (mix.keep == 1.0 ? kept : mix.height > 0 ? cut : blended) += 1;
  }
  // A rectangle of less than two pixels a side is none, and counts as kept.
  EXPECT_NEAR(kept, 2000, 5 * std::sqrt(1000) + 10);
  EXPECT_NEAR(cut, 500, 5 * std::sqrt(500 * 7.0 / 8) + 10);
  EXPECT_NEAR(blended, 1500, 5 * std::sqrt(1500 * 5.0 / 8));
}

TEST(DrawMix, IsOnlyOfTheKindThatIsOn) {
  for (std::uint64_t i = 0; i < 200; ++i) {
    CounterRandom a{3, i}, b{3, i}, c{3, i};
    EXPECT_EQ(draw_mix({.mixup = 0.8}, {32, 32}, a).height, 0);
    const Mix cut = draw_mix({.cutmix = 1}, {32, 32}, b);
    EXPECT_TRUE(cut.height > 0 || cut.keep == 1.0);
    EXPECT_EQ(draw_mix({.label_smoothing = 0.1}, {32, 32}, c).keep, 1.0);
  }
}

TEST(DrawMix, RectanglesCountByTheirArea) {
  for (std::uint64_t i = 0; i < 500; ++i) {
    CounterRandom random{4, i};
    const Mix mix = draw_mix({.cutmix = 1}, {20, 30}, random);
    ASSERT_GE(mix.top, 0);
    ASSERT_GE(mix.left, 0);
    ASSERT_LE(mix.top + mix.height, 20);
    ASSERT_LE(mix.left + mix.width, 30);
    ASSERT_DOUBLE_EQ(mix.keep, 1 - mix.height * mix.width / 600.0);
  }
}

TEST(ApplyMix, BlendsOrCuts) {
  const std::vector<float> other(12, 10.0f);
  std::vector<float> image(12, 2.0f);
  apply_mix({0.75}, other.data(), 2, {2, 3}, image.data());
  EXPECT_EQ(image, std::vector<float>(12, 4.0f));
  image.assign(12, 2.0f);
  apply_mix({0.5, 1, 1, 1, 2}, other.data(), 2, {2, 3}, image.data());
  EXPECT_EQ(image, (std::vector<float>{2, 2, 2, 2, 10, 10, 2, 2, 2, 2, 10, 10}));
  apply_mix({}, std::vector<float>(12, 7.0f).data(), 2, {2, 3}, image.data());
  EXPECT_EQ(image[0], 2.0f);
}

TEST(AddTarget, SmoothsAndSumsToOne) {
  std::array<float, 4> target{};
  add_target({.label_smoothing = 0.2}, 0.75, 1, 4, target.data());
  add_target({.label_smoothing = 0.2}, 0.25, 3, 4, target.data());
  const std::array<double, 4> expected{0.05, 0.05 + 0.6, 0.05, 0.05 + 0.2};
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(target.at(k), expected.at(k), 1e-6);
}

TEST(CheckMixing, NamesWhatIsOutOfRange) {
  EXPECT_NO_THROW(check_mixing({}));
  const auto error = [](const ImageMixing& mixing) {
    return message_of<std::invalid_argument>([&] { check_mixing(mixing); });
  };
  expect_part(error({.mixup = -1}), "mixup and cutmix");
  expect_part(error({.probability = 2}), "probability");
  expect_part(error({.label_smoothing = 1}), "label_smoothing");
  expect_part(error({.mixup = NAN}), "mixup");
}

}  // namespace
}  // namespace pareprop::data
