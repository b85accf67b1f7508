#include "pareprop/train/run_schedule.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace pareprop::train {
namespace {

RunSchedule schedule_of(const TrainConfig& config, std::int64_t batches = 10) {
  return RunSchedule(config, Decay::linear, batches);
}

TEST(RunSchedule, StepsAreThoseAskedForOrThoseOfTheEpochs) {
  EXPECT_EQ(schedule_of({.steps = 7, .epochs = 3.0}).all_steps(), 7);
  EXPECT_EQ(schedule_of({.epochs = 3.0}).all_steps(), 30);
  EXPECT_EQ(schedule_of({.accumulate = 4, .epochs = 3.0}).all_steps(), 8);  // 7.5
  EXPECT_EQ(schedule_of({.epochs = 0.001}).all_steps(), 1);
  EXPECT_DOUBLE_EQ(schedule_of({.accumulate = 4}).epochs(5), 2.0);
}

TEST(RunSchedule, TheLearningRateRisesAndFallsOverAllSteps) {
  const RunSchedule schedule =
      schedule_of({.steps = 20, .learning_rate = 1.0, .last_learning_rate = 0.5, .warmup = 0.1});
  EXPECT_DOUBLE_EQ(schedule.learning_rate(0), 0.5);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(1), 1.0);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(11), 0.75);
  EXPECT_DOUBLE_EQ(schedule.learning_rate(20), 0.5);
}

TEST(RunSchedule, EvaluatesEveryEpochOrAsOftenAsAskedAndAfterTheLastStep) {
  const RunSchedule epochs = schedule_of({.accumulate = 2, .steps = 12});
  const RunSchedule asked = schedule_of({.steps = 12, .eval_every = 8});
  for (std::int64_t step = 0; step <= 12; ++step) {
    EXPECT_EQ(epochs.evaluates(step), step == 5 || step == 10 || step == 12) << step;
    EXPECT_EQ(asked.evaluates(step), step == 8 || step == 12) << step;
  }
  // An epoch that is shorter than a step.
  EXPECT_TRUE(schedule_of({.accumulate = 100, .steps = 12}).evaluates(1));
}

TEST(RunSchedule, LogsTheFirstAndTheLastStepToo) {
  const RunSchedule schedule = schedule_of({.steps = 25, .log_every = 10});
  for (std::int64_t step = 4; step <= 25; ++step) {
    EXPECT_EQ(schedule.is_logged(step, 4), step == 4 || step % 10 == 0 || step == 25) << step;
  }
}

TEST(RunSchedule, IsOverAfterTheLastEvaluationOrTooManyThatWereNotBetter) {
  const RunSchedule patient = schedule_of({.steps = 12, .early_stop = 2});
  const RunSchedule endless = schedule_of({.steps = 12});
  const std::vector<LossPoint> better = {{4, 3.0}, {8, 2.0}},
                               worse = {{2, 1.0}, {4, 2.0}, {8, 1.5}};
  EXPECT_FALSE(patient.stops_early(better));
  EXPECT_TRUE(patient.stops_early(worse));
  EXPECT_FALSE(endless.stops_early(worse));
  EXPECT_TRUE(patient.is_over(8, worse));
  EXPECT_FALSE(patient.is_over(9, worse));
  EXPECT_FALSE(endless.is_over(8, worse));
  EXPECT_FALSE(endless.is_over(12, worse));
  EXPECT_TRUE(endless.is_over(12, {{12, 1.0}}));
  EXPECT_FALSE(endless.is_over(0, {}));
}

TEST(RunSchedule, RefusesRatesThatContradictEachOther) {
  EXPECT_THROW(schedule_of({.learning_rate = 1.0, .last_learning_rate = 2.0}),
               std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::train
