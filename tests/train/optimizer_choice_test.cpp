#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "pareprop/models/named_tensors.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/model_for_data.h"
#include "pareprop/train/trainer.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::train {
namespace {

using io::testing::content;
using io::testing::message_of;
using io::testing::TemporaryFolder;

// A RevViT on the digits, wide enough that most of its state is not kept in float32.
TrainConfig digits_run(const std::filesystem::path& out, const std::string& optimizer,
                       const std::string& state) {
  TrainConfig config;
  config.model = "vit_cifar";
  config.width = 64;
  config.depth = {2};
  config.data = "digits";
  config.mode = "pareprop";
  config.batch = 16;
  config.steps = 8;
  config.eval_every = 100;
  config.log_every = 1;
  config.initial_std = 0.1;
  config.learning_rate = optimizer == "sgd" ? 3e-2 : 2e-3;
  config.optimizer = optimizer;
  config.optimizer_state = state;
  config.out = out.string();
  return config;
}

TrainResult train_run(const TrainConfig& config, const TrainEvents& events = {}) {
  const auto group = distributed::make_process_group({});
  return train(config, *group, events);
}

const std::vector<std::pair<std::string, std::string>>& choices() {
  static const std::vector<std::pair<std::string, std::string>> all{
      {"adamw", "fp32"}, {"adamw", "bf16"}, {"adamw", "8bit"},    {"sgd", "fp32"},
      {"sgd", "bf16"},   {"sgd", "8bit"},   {"adafactor", "fp32"}};
  return all;
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const at::Tensor& tensor) {
                           return sum + static_cast<std::int64_t>(tensor.nbytes());
                         });
}

TEST(OptimizerChoice, PredictedStateIsTheStateThatIsMade) {
  for (const auto& [optimizer, state] : choices()) {
    for (const double ema : {0.0, 0.99}) {
      TrainConfig config = digits_run("run", optimizer, state);
      config.ema = ema;
      const TrainChoices chosen = check(config);
      const TrainingData data = open_data(config);
      const auto group = distributed::one_process();
      Learner learner = make_learner(config, chosen, data, at::kCPU, *group);
      const auto planned = make_model(config, data, {.device = at::kMeta});
      plan::MakeOptimizer made = dry_optimizer(chosen.optimizer);
      if (ema > 0.0) made = with_average(made);
      EXPECT_EQ(bytes_of(made(planned->parameters()).state), learner.trained().state_bytes())
          << optimizer << " " << state;
    }
  }
}

TEST(OptimizerChoice, AStoppedRunGoesOnWithTheSameBits) {
  for (const auto& [optimizer, state] : choices()) {
    if (optimizer == "adamw" && state == "fp32") continue;  // trainer_test.cpp
    const TemporaryFolder folder;
    const TrainConfig whole = digits_run(folder / "whole", optimizer, state);
    train_run(whole);
    TrainConfig parts = whole;
    parts.out = (folder / "parts").string();
    TrainEvents stopping;
    stopping.stop_asked = [done = std::make_shared<int>(0)] { return ++*done >= 3; };
    EXPECT_EQ(train_run(parts, stopping).end, TrainEnd::stopped_by_user);
    parts.resume = "auto";
    EXPECT_EQ(train_run(parts).end, TrainEnd::finished);
    EXPECT_EQ(content(folder / "parts/model.safetensors"),
              content(folder / "whole/model.safetensors"))
        << optimizer << " " << state;
  }
}

TEST(OptimizerChoice, AnotherOptimizerOrStateDoesNotResume) {
  const TemporaryFolder folder;
  TrainConfig config = digits_run(folder / "run", "adamw", "8bit");
  config.steps = 2;
  train_run(config);
  config.resume = "auto";
  config.steps = 4;
  const auto why = [&](const std::string& optimizer, const std::string& state) {
    config.optimizer = optimizer;
    config.optimizer_state = state;
    return message_of<std::invalid_argument>([&] { train_run(config); });
  };
  EXPECT_NE(why("adamw", "fp32").find("--optimizer-state 8bit, but now it is fp32"),
            std::string::npos)
      << why("adamw", "fp32");
  EXPECT_NE(why("sgd", "8bit").find("--optimizer adamw, but now it is sgd"), std::string::npos);
}

TEST(OptimizerChoice, BadChoicesAreNamed) {
  const auto why = [](const std::string& optimizer, const std::string& state,
                      const std::string& precision) {
    TrainConfig config = digits_run("run", optimizer, state);
    config.precision = precision;
    return message_of<FieldError>([&] { check(config); });
  };
  EXPECT_EQ(why("lion", "fp32", "fp32"), "optimizer: expected adamw, sgd or adafactor, got 'lion'");
  EXPECT_EQ(why("adamw", "4bit", "fp32"),
            "optimizer_state: expected fp32, bf16 or 8bit, got '4bit'");
  EXPECT_EQ(why("adamw", "8bit", "fp64"),
            "optimizer_state: expected fp32, because --precision is fp64, got 8bit");
  EXPECT_EQ(
      why("adafactor", "bf16", "fp32"),
      "optimizer_state: expected fp32 with adafactor, whose state is next to nothing, got bf16");
}

// Losses of the last steps, of few steps: lean state learns as fast.
TEST(OptimizerChoice, LeanStateLearnsAsFloat32Does) {
  const auto last_losses = [](const std::string& state) {
    const TemporaryFolder folder;
    TrainConfig config = digits_run(folder / "run", "adamw", state);
    config.batch = 32;
    config.steps = 120;
    const TrainResult result = train_run(config);
    double sum = 0.0;
    constexpr int kLast = 20;
    for (std::size_t i = result.steps.size() - kLast; i < result.steps.size(); ++i) {
      sum += result.steps[i].loss;
    }
    return sum / kLast;
  };
  const double expected = last_losses("fp32");
  EXPECT_LT(expected, 1.5);
  for (const char* state : {"bf16", "8bit"}) {
    EXPECT_NEAR(last_losses(state), expected, 0.05 * expected) << state;
  }
}

}  // namespace
}  // namespace pareprop::train
