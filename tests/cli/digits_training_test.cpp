#include "cli/digits_training.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cli/demo_report.h"

namespace pareprop::cli {
namespace {

// One thread: on a busy machine threads that wait for each other in tiny steps take very long.
class DigitsTrainingTest : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

DigitsTraining short_training(Mode mode) { return {.mode = mode, .steps = 4, .batch = 8}; }

TEST_F(DigitsTrainingTest, TheSameSeedGivesTheSameLosses) {
  const auto first = train_digits(short_training(Mode::reprop));
  const auto again = train_digits(short_training(Mode::reprop));
  EXPECT_EQ(first.losses, again.losses);
  DigitsTraining other = short_training(Mode::reprop);
  other.seed = 1;
  EXPECT_NE(first.losses, train_digits(other).losses);
}

TEST_F(DigitsTrainingTest, Learns) {
  DigitsTraining training{.mode = Mode::stored, .steps = 60, .batch = 32};
  int heard = 0;
  const auto result = train_digits(training, [&](int step) { EXPECT_EQ(step, ++heard); });
  EXPECT_EQ(heard, training.steps);
  EXPECT_LT(result.final_loss(), 0.7 * result.losses.front());
  EXPECT_GT(result.accuracy, 0.3);
}

TEST_F(DigitsTrainingTest, CountsWhatTheLastBackwardPassRecomputed) {
  EXPECT_EQ(train_digits(short_training(Mode::stored)).recomputed_branches(), 0);
  // 8 blocks, and the topmost branch keeps its tape.
  EXPECT_EQ(train_digits(short_training(Mode::reprop)).recomputed_branches(), 15);
}

TEST_F(DigitsTrainingTest, EveryModeHasTheBitsOfStored) {
  const auto stored = train_digits(short_training(Mode::stored));
  EXPECT_EQ(train_digits(short_training(Mode::reprop)).losses, stored.losses);
  EXPECT_EQ(train_digits(short_training(Mode::pareprop)).losses, stored.losses);
}

TEST(DemoReport, SeesALossThatDiffers) {
  DemoReport report;
  report.runs.resize(2);
  report.runs[0].result.losses = {2.0, 1.0};
  report.runs[1].result.losses = {2.0, 1.0};
  EXPECT_TRUE(report.same_loss());
  report.runs[1].result.losses = {2.0, 1.25};
  EXPECT_FALSE(report.same_loss());
  EXPECT_EQ(report.loss_difference(), 0.25);
  report.runs[1].result.losses = {2.0, std::nan("")};
  EXPECT_FALSE(report.same_loss());
}

}  // namespace
}  // namespace pareprop::cli
