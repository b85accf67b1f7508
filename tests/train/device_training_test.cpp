// Training as on an accelerator: the device path on the CPU.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pareprop/ops/device_path.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/train/gradient_norm.h"
#include "pareprop/train/trainer.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/host_reads.h"
#include "tests/optim/random_parameters.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

using io::testing::TemporaryFolder;

TrainConfig few_steps(const std::filesystem::path& out) {
  TrainConfig config = testing::small_config(out);
  config.batch = 8;
  config.steps = 6;
  config.accumulate = 2;
  config.clip = 0.5;
  config.ema = 0.9;
  return config;
}

TrainResult run_steps(const TrainConfig& config, bool device_path,
                      const std::function<void()>& on_step = {}) {
  const DevicePathScope scope(device_path);
  TrainEvents events;
  if (on_step) events.on_step = [&](const auto&...) { on_step(); };
  return testing::train_alone(config, events);
}

TEST(DeviceTraining, HasTheLossesNormsAndAccuraciesOfTheCpu) {
  const TemporaryFolder folder;
  const TrainResult cpu = run_steps(few_steps(folder / "cpu"), false);
  const TrainResult device = run_steps(few_steps(folder / "device"), true);
  ASSERT_EQ(cpu.steps.size(), device.steps.size());
  for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
    EXPECT_NEAR(device.steps[i].loss / cpu.steps[i].loss, 1.0, 1e-3) << i;
    EXPECT_NEAR(device.steps[i].gradient_norm / cpu.steps[i].gradient_norm, 1.0, 2e-2) << i;
    EXPECT_NEAR(device.steps[i].accuracy, cpu.steps[i].accuracy, 0.1) << i;
  }
  EXPECT_NEAR(device.evaluation.loss / cpu.evaluation.loss, 1.0, 1e-2);
}

TEST(DeviceTraining, ReadsNoValueOfItsOwnInAStep) {
  const TemporaryFolder folder;
  const pareprop::testing::HostReads reads;
  std::vector<std::int64_t> counts;
  run_steps(few_steps(folder / "run"), true, [&] { counts.push_back(reads.count()); });
  ASSERT_EQ(counts.size(), 6U);
  for (std::size_t i = 1; i < counts.size(); ++i) EXPECT_EQ(counts[i], counts[0]) << i;
}

TEST(DeviceTraining, GradientNormsAreThoseOfTheCpu) {
  const auto parameters = optim::testing::random_parameters(1);
  optim::testing::random_gradients(parameters, 1);
  const auto norm_there = [&] {
    const DevicePathScope scope;
    const GradientNorms norms(parameters);
    return norm_of(parameters, norms.squares(read_numbers(norms.numbers())));
  };
  EXPECT_NEAR(norm_there().norm / norm_of(parameters, squared_norms(parameters)).norm, 1.0, 1e-12);
  EXPECT_EQ(norm_there().first_not_finite, "");
  for (const std::size_t bad : {0, 2}) {
    parameters[bad].second.grad().flatten()[3].fill_(std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(norm_there().first_not_finite, parameters[bad].first);
    EXPECT_TRUE(std::isnan(norm_there().norm));
  }
}

TEST(DeviceTraining, AStepThatIsNotFiniteIsRefusedAndLeavesTheWeights) {
  const TemporaryFolder folder;
  for (const bool device_path : {false, true}) {
    TrainConfig config = few_steps(folder / (device_path ? "device" : "cpu"));
    config.streams = "float";
    config.learning_rate = 1e30;
    config.clip = 0.0;
    try {
      run_steps(config, device_path);
      ADD_FAILURE() << "expected an error";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("is not finite"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace pareprop::train
