#include "pareprop/train/learning_rate.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop::train {
namespace {

constexpr LearningRate kRate{
    .peak = 1.0, .last = 0.2, .warmup = 4, .total = 12, .decay = Decay::cosine};

TEST(LearningRate, RisesInTheWarmUp) {
  for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(kRate.at(step), 0.25 * (step + 1));
}

TEST(LearningRate, FallsAsItsDecaySays) {
  LearningRate rate = kRate;
  EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(8), 0.6);
  EXPECT_NEAR(rate.at(6), 0.2 + 0.8 * (0.5 + 0.25 * 1.4142135623730951), 1e-12);
  rate.decay = Decay::linear;
  EXPECT_DOUBLE_EQ(rate.at(4), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(6), 0.8);
  for (const std::int64_t step : {12, 13, 1000}) EXPECT_DOUBLE_EQ(rate.at(step), 0.2);
  rate.decay = Decay::constant;
  for (const std::int64_t step : {4, 11, 12, 1000}) EXPECT_DOUBLE_EQ(rate.at(step), 1.0);
}

TEST(LearningRate, MayBeWarmUpAlone) {
  LearningRate rate = kRate;
  rate.warmup = rate.total;
  EXPECT_DOUBLE_EQ(rate.at(11), 1.0);
  EXPECT_DOUBLE_EQ(rate.at(12), 0.2);
}

TEST(LearningRate, ChecksItsNumbers) {
  EXPECT_NO_THROW(kRate.check());
  const auto wrong = [](auto change) {
    LearningRate rate = kRate;
    change(rate);
    EXPECT_THROW(rate.check(), std::invalid_argument);
  };
  wrong([](LearningRate& rate) { rate.peak = 0.0; });
  wrong([](LearningRate& rate) { rate.last = 1.5; });
  wrong([](LearningRate& rate) { rate.last = -0.1; });
  wrong([](LearningRate& rate) { rate.total = 0; });
  wrong([](LearningRate& rate) { rate.warmup = 13; });
  wrong([](LearningRate& rate) { rate.warmup = -1; });
}

TEST(LearningRate, DecaysHaveNames) {
  for (const Decay decay : {Decay::cosine, Decay::linear, Decay::constant}) {
    EXPECT_EQ(decay_of(name(decay)), decay);
  }
  EXPECT_THROW(decay_of("cosin"), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::train
