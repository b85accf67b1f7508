// Parameters that are frozen, learning rates of layers, and a head that is trained first.

#include "pareprop/models/fine_tuning.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "pareprop/io/safetensors.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/train/head_first.h"
#include "pareprop/train/model_for_data.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/trained_run.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

using io::testing::content;
using io::testing::message_of;
using io::testing::TemporaryFolder;

using Weights = std::map<std::string, at::Tensor>;

Weights of_run(const std::string& folder) {
  const io::SafetensorsFile file(folder + "/model.safetensors");
  Weights weights;
  for (const std::string& name : file.names()) weights[name] = file.tensor(name).clone();
  return weights;
}

Weights of_first(const TrainConfig& config) {
  const TrainingData data = open_data(config);
  const auto model = make_model(config, data, {.seed = config.seed});
  scale_first_weights(*model, config);
  Weights weights;
  for (const auto& item : model->named_parameters()) {
    weights[item.key()] = item.value().detach().clone();
  }
  return weights;
}

std::set<std::string> changed(const Weights& before, const Weights& after) {
  std::set<std::string> names;
  for (const auto& [name, value] : before) {
    if (!value.equal(after.at(name))) names.insert(name);
  }
  return names;
}

class FineTuning : public ::testing::Test {
 protected:
  TrainConfig small() {
    TrainConfig config = testing::small_config(folder_ / std::to_string(++runs_));
    config.steps = 5;
    config.eval_every = 100;
    return config;
  }
  Weights train(const TrainConfig& config) {
    result_ = testing::train_alone(config);
    return of_run(config.out);
  }
  // Stopped after each of these steps, and resumed.
  Weights train_in_pieces(TrainConfig config, const std::vector<int>& stops) {
    for (const int steps : stops) {
      TrainEvents events;
      events.stop_asked = [done = std::make_shared<int>(0), steps] { return ++*done >= steps; };
      EXPECT_EQ(testing::train_alone(config, events).end, TrainEnd::stopped_by_user);
      config.resume = "auto";
    }
    return train(config);
  }

  TemporaryFolder folder_;
  TrainResult result_;
  int runs_ = 0;
};

TEST_F(FineTuning, FrozenWeightsKeepEveryBit) {
  for (const bool plain : {false, true}) {
    for (const char* const update : {"after", "inside"}) {
      for (const char* const mode : {"auto", "checkpoint"}) {
        SCOPED_TRACE(std::string(update) + " " + mode + (plain ? " plain" : ""));
        TrainConfig config = small();
        config.plain = plain;
        config.update = update;
        config.mode = mode;
        config.ema = 0.9;
        config.freeze = "patch_embed.*,pos_embed,blocks.0.*,norm.*";
        if (plain) config.freeze += ",cls_token";
        const Weights first = of_first(config);
        const std::set<std::string> moved = changed(first, train(config));
        EXPECT_FALSE(moved.empty());
        for (const auto& [name, value] : first) {
          const bool frozen = name.starts_with("patch_embed") || name == "pos_embed" ||
                              name == "cls_token" || name.starts_with("blocks.0.") ||
                              name.starts_with("norm.");
          EXPECT_EQ(moved.contains(name), !frozen) << name;
        }
      }
    }
  }
}

// The same gradients as those of a run that trains everything, where nothing above was changed.
TEST_F(FineTuning, WhatIsTrainedBesideFrozenWeightsMovesAsItWould) {
  TrainConfig config = small();
  config.steps = 1;
  config.clip = 0.0;
  const Weights whole = train(config);
  config = small();
  config.steps = 1;
  config.clip = 0.0;
  config.freeze = "patch_embed.*,pos_embed,blocks.0.*";
  const Weights part = train(config);
  for (const auto& [name, value] : part) {
    if (name.starts_with("blocks.1.") || name.starts_with("head")) {
      EXPECT_TRUE(value.allclose(whole.at(name), 1e-5, 1e-7)) << name;
    }
  }
}

TEST_F(FineTuning, PlansCountOnlyWhatIsTrained) {
  memory::install_caching_allocator();
  TrainConfig config = small();
  config.width = 64;
  config.depth = {4};
  config.mode = "stored";
  train(config);
  const std::int64_t whole = result_.memory.total_peak;
  config.out = (folder_ / "frozen").string();
  config.freeze = "*,!head*,!blocks.3.*";
  train(config);
  const auto peak = static_cast<double>(result_.memory.total_peak);
  EXPECT_LT(peak, 0.8 * static_cast<double>(whole));
  EXPECT_NEAR(static_cast<double>(result_.predicted_peak_bytes) / peak, 1.0, 0.05);
  EXPECT_GE(static_cast<double>(result_.predicted_peak_bytes) * 1.01, peak);
}

TEST_F(FineTuning, RefusesPatternsThatFitNothingOrLeaveNothing) {
  const auto refusal = [&](const std::string& freeze, std::int64_t head_steps = 0) {
    TrainConfig config = small();
    config.freeze = freeze;
    config.head_steps = head_steps;
    return message_of<FieldError>([&] { testing::train_alone(config); });
  };
  const std::string mistyped = refusal("block.0.*");
  EXPECT_NE(mistyped.find("freeze: no parameter fits 'block.0.*'"), std::string::npos) << mistyped;
  EXPECT_NE(mistyped.find("blocks.0."), std::string::npos) << mistyped;
  EXPECT_NE(refusal("*").find("freeze: '*' freezes everything"), std::string::npos);
  const std::string headless = refusal("head.*", 2);
  EXPECT_NE(headless.find("head_steps: expected 0"), std::string::npos) << headless;
}

// With plain gradient descent the first step of a weight is its rate times its gradient.
TEST_F(FineTuning, TheRateOfALayerIsTheHeadsTimesAPower) {
  for (const char* const update : {"after", "inside"}) {
    TrainConfig config = small();
    config.optimizer = "sgd";
    config.momentum = 0.0;
    config.learning_rate = 0.1;
    config.weight_decay = 0.3;
    config.warmup = 0.0;
    config.steps = 1;
    config.update = update;
    const Weights first = of_first(config), even = train(config);
    config.out = (folder_ / std::to_string(++runs_)).string();
    config.layer_decay = 0.5;
    const Weights decayed = train(config);
    for (const auto& [name, before] : first) {
      const double power = name.starts_with("blocks.1.")                          ? 1.0
                           : name.starts_with("blocks.0.")                        ? 2.0
                           : name.starts_with("head") || name.starts_with("norm") ? 0.0
                                                                                  : 3.0;
      const at::Tensor moved = even.at(name).sub(before).mul(std::pow(0.5, power));
      EXPECT_TRUE(decayed.at(name).sub(before).allclose(moved, 1e-3, 1e-6)) << name;
      EXPECT_FALSE(even.at(name).equal(before)) << name;
    }
  }
}

TEST_F(FineTuning, LayerDecayWorksWithEveryOptimizerAndAfterAResume) {
  for (const auto& [optimizer, state] :
       {std::pair{"adamw", "fp32"}, std::pair{"adamw", "8bit"}, std::pair{"sgd", "bf16"},
        std::pair{"adafactor", "fp32"}}) {
    TrainConfig config = small();
    config.optimizer = optimizer;
    config.optimizer_state = state;
    config.layer_decay = 0.6;
    train(config);
    const std::string expected = content(config.out + "/model.safetensors");
    TrainConfig pieces = config;
    pieces.out = (folder_ / std::to_string(++runs_)).string();
    train_in_pieces(pieces, {1, 2});
    EXPECT_EQ(content(pieces.out + "/model.safetensors"), expected) << optimizer << " " << state;
    config.out = (folder_ / std::to_string(++runs_)).string();
    config.layer_decay = 1.0;
    train(config);
    EXPECT_NE(content(config.out + "/model.safetensors"), expected) << optimizer << " " << state;
  }
}

TEST_F(FineTuning, TheHeadIsTrainedFirst) {
  for (const char* const update : {"after", "inside"}) {
    for (const char* const optimizer : {"adamw", "sgd"}) {
      SCOPED_TRACE(std::string(update) + " " + optimizer);
      TrainConfig config = small();
      config.update = update;
      config.optimizer = optimizer;
      config.ema = 0.9;
      config.head_steps = 5;
      const Weights first = of_first(config);
      EXPECT_EQ(changed(first, train(config)), (std::set<std::string>{"head.bias", "head.weight"}));
      config.out = (folder_ / std::to_string(++runs_)).string();
      config.head_steps = 3;
      EXPECT_EQ(changed(first, train(config)).size(), first.size());
      const std::string expected = content(config.out + "/model.safetensors");
      TrainConfig pieces = config;
      pieces.out = (folder_ / std::to_string(++runs_)).string();
      train_in_pieces(pieces, {2, 1, 1});  // before, at and after the end of the first phase
      EXPECT_EQ(content(pieces.out + "/model.safetensors"), expected);
    }
  }
}

// The others' first step is their first: what the optimizer keeps of them begins there.
TEST_F(FineTuning, StepsOfTheHeadDoNotCountForTheOthers) {
  TrainConfig config = small();
  config.head_steps = 4;
  train(config);
  const auto found = newest_whole(checkpoint_folder(config.out)).newest;
  ASSERT_TRUE(found);
  const io::SafetensorsFile state(found->folder / found->optimizer.front());
  EXPECT_EQ(state.tensor("step.head.weight").item<double>(), 5.0);
  EXPECT_EQ(state.tensor("step.blocks.0.f.qkv.weight").item<double>(), 1.0);
}

TEST_F(FineTuning, ARunDoesNotGoOnWithOtherFrozenWeights) {
  TrainConfig config = small();
  config.freeze = "blocks.0.*";
  train(config);
  config.resume = "auto";
  config.steps = 7;
  config.freeze = "blocks.1.*";
  const std::string said = message_of<std::invalid_argument>([&] { testing::train_alone(config); });
  EXPECT_NE(said.find("was trained with --freeze blocks.0.*"), std::string::npos) << said;
}

}  // namespace
}  // namespace pareprop::train
