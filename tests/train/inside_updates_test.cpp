#include "pareprop/train/inside_updates.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/memory/meter.h"
#include "pareprop/models/weights.h"
#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/model_for_data.h"
#include "pareprop/train/trainer.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::train {
namespace {

using io::testing::content;
using io::testing::message_of;
using io::testing::TemporaryFolder;

TrainConfig small(const std::string& model) {
  TrainConfig config;
  config.model = model;
  config.batch = 4;
  config.steps = 50;
  config.eval_every = 1000;
  config.log_every = 1;
  config.initial_std = 0.1;
  config.learning_rate = 3e-3;
  config.dropout = 0.1;
  config.drop_path = 0.1;
  config.exact = true;
  config.clip = 0.0;
  config.mode = "pareprop";
  if (model == "vit_cifar") {
    config.width = 16;
    config.depth = {4};
  } else if (model == "roberta_base") {
    config.width = 24;
    config.depth = {3};
    config.data = "persuasion";
    config.vocabulary = 300;
    config.seq_len = 16;
  } else {
    config.width = model == "swin_cifar" ? 24 : 16;
    config.depth = {2};
  }
  return config;
}

TrainResult run(const TrainConfig& config, const TrainEvents& events = {}) {
  const auto group = distributed::make_process_group({});
  return train(config, *group, events);
}

struct Outcome {
  TrainResult result;
  std::string weights;
};

Outcome trained(TrainConfig config, const TemporaryFolder& folder, const std::string& update) {
  static int runs = 0;
  config.update = update;
  config.out = (folder / ("run" + std::to_string(++runs))).string();
  const TrainResult result = run(config);
  return {result, content(config.out + "/model.safetensors")};
}

TEST(InsideUpdates, GiveTheBitsOfUpdatesAfterTheBackwardPass) {
  const TemporaryFolder folder;
  for (const char* model : {"vit_cifar", "swin_cifar", "mvit_cifar", "roberta_base"}) {
    for (const char* mode : {"pareprop", "reprop", "stored", "checkpoint"}) {
      TrainConfig config = small(model);
      config.mode = mode;
      if (config.mode != "pareprop") config.steps = 6;
      const bool keeps_streams = config.mode == "stored" || config.mode == "checkpoint";
      if (keeps_streams && config.model != "vit_cifar") continue;
      const Outcome after = trained(config, folder, "after");
      const Outcome inside = trained(config, folder, "inside");
      EXPECT_EQ(inside.weights, after.weights) << model << " " << mode;
      ASSERT_EQ(inside.result.steps.size(), after.result.steps.size());
      for (std::size_t i = 0; i < after.result.steps.size(); ++i) {
        EXPECT_EQ(inside.result.steps[i].loss, after.result.steps[i].loss) << model << " " << i;
        EXPECT_EQ(inside.result.steps[i].gradient_norm, after.result.steps[i].gradient_norm);
      }
    }
  }
}

// The weights after so many steps on `lanes` lanes.
std::vector<at::Tensor> weights_after(int steps, const TrainConfig& config, int lanes,
                                      bool inside) {
  const auto group = distributed::make_process_group({});
  const Learner learner =
      make_learner(config, choices_of(config), open_data(config), at::kCPU, *group);
  models::Model& model = *learner.model;
  StepPlan plan = model.plan_of(lanes == 1 ? Mode::reprop : Mode::pareprop);
  for (StackPlan& stack : plan.stacks) stack.lanes = std::max(2, lanes);
  model.set_plan(plan);
  std::optional<InsideUpdates> updates;
  if (inside) updates.emplace(model, *learner.optimizer, *learner.shares);
  constexpr double kRate = 3e-3;
  for (int step = 0; step < steps; ++step) {
    const auto number = static_cast<std::uint64_t>(step);
    drop_gradients(model);
    const at::Tensor loss =
        model.loss(model.example(2, number),
                   {.pass = std::make_shared<Pass>(1, number, std::make_shared<DeferredChecks>(),
                                                   inside ? updates->taker() : nullptr)});
    if (inside) updates->begin_stepping(kRate, 1.0, nullptr);
    loss.backward();
    if (inside) {
      updates->finish();
    } else {
      learner.optimizer->step(kRate, 1.0);
    }
  }
  std::vector<at::Tensor> weights;
  for (const at::Tensor& weight : model.weights()) weights.push_back(weight.detach());
  return weights;
}

// The steps of whole runs are on two.
TEST(InsideUpdates, GiveTheSameBitsOnOneOrThreeLanes) {
  constexpr int kSteps = 20;
  for (const char* model : {"vit_cifar", "swin_cifar", "mvit_cifar", "roberta_base"}) {
    TrainConfig config = small(model);
    if (config.model != "mvit_cifar") config.depth = {config.model == "swin_cifar" ? 1 : 2};
    for (const int lanes : {1, 3}) {
      const auto after = weights_after(kSteps, config, lanes, false);
      const auto inside = weights_after(kSteps, config, lanes, true);
      ASSERT_EQ(inside.size(), after.size());
      int other = 0;
      for (std::size_t i = 0; i < after.size(); ++i) other += !inside[i].equal(after[i]);
      EXPECT_EQ(other, 0) << model << ", lanes " << lanes << ": so many weights differ";
    }
  }
}

TEST(InsideUpdates, ClipByTheNormOfAllGradients) {
  const TemporaryFolder folder;
  for (const char* model : {"vit_cifar", "mvit_cifar"}) {
    TrainConfig config = small(model);
    config.steps = 12;
    config.clip = 0.05;
    config.ema = 0.9;
    EXPECT_EQ(trained(config, folder, "inside").weights, trained(config, folder, "after").weights);
  }
}

TEST(InsideUpdates, WorkInPlainNetworks) {
  const TemporaryFolder folder;
  TrainConfig config = small("vit_cifar");
  config.plain = true;
  config.exact = false;
  config.streams = "float";
  config.steps = 5;
  for (const char* const mode : {"stored", "checkpoint", "auto"}) {
    config.mode = mode;
    EXPECT_EQ(trained(config, folder, "inside").weights, trained(config, folder, "after").weights);
  }
}

TEST(InsideUpdates, HoldTheGradientsOfTwoBlocksAndOneTensor) {
  memory::install_caching_allocator();
  const TemporaryFolder folder;
  for (const char* mode : {"reprop", "pareprop"}) {
    TrainConfig config = small("vit_cifar");
    config.width = 64;
    config.depth = {12};
    config.steps = 3;
    config.mode = mode;
    const TrainingData data = open_data(config);
    const auto model = make_model(config, data, {.device = at::kMeta});
    std::int64_t all = 0, blocks = 0, largest = 0;
    for (const at::Tensor& weight : model->weights()) {
      all += static_cast<std::int64_t>(weight.nbytes());
      largest = std::max(largest, static_cast<std::int64_t>(weight.nbytes()));
    }
    for (const at::Tensor& weight : model->block_weights()) {
      blocks += static_cast<std::int64_t>(weight.nbytes());
    }
    const auto most = [](const Outcome& run) {
      return run.result.memory.peak_of(memory::Tag::gradients);
    };
    EXPECT_LE(most(trained(config, folder, "inside")), 2 * blocks / 12 + largest) << mode;
    EXPECT_GE(most(trained(config, folder, "after")), all) << mode;
    config.clip = 1.0;
    EXPECT_LE(most(trained(config, folder, "inside")), 2 * blocks / 12 + largest) << mode;
  }
}

TEST(InsideUpdates, TakeTheMemoryThatIsPredicted) {
  memory::install_caching_allocator();
  const TemporaryFolder folder;
  for (const double clip : {0.0, 1.0}) {
    TrainConfig config = small("vit_cifar");
    config.width = 96;
    config.depth = {6};
    config.steps = 3;
    config.clip = clip;
    config.mode = "reprop";
    const TrainResult result = trained(config, folder, "inside").result;
    const auto predicted = static_cast<double>(result.predicted_peak_bytes);
    EXPECT_NEAR(static_cast<double>(result.memory.total_peak) / predicted, 1.0, 0.03) << clip;
  }
}

TEST(InsideUpdates, AStoppedRunGoesOnWithTheSameBits) {
  const TemporaryFolder folder;
  TrainConfig config = small("vit_cifar");
  config.steps = 8;
  const std::string whole = trained(config, folder, "inside").weights;
  config.update = "inside";
  config.out = (folder / "parts").string();
  int asked = 0;
  TrainEvents stopping;
  stopping.stop_asked = [&] { return ++asked >= 4; };
  EXPECT_EQ(run(config, stopping).end, TrainEnd::stopped_by_user);
  config.resume = "auto";
  EXPECT_EQ(run(config).end, TrainEnd::finished);
  EXPECT_EQ(content(folder / "parts/model.safetensors"), whole);
}

TEST(InsideUpdates, ALossThatIsNotFiniteChangesNothing) {
  const TemporaryFolder folder;
  TrainConfig config = small("vit_cifar");
  config.learning_rate = 1e30;
  config.warmup = 0.0;
  config.exact = false;
  config.streams = "float";
  config.mode = "stored";
  config.update = "inside";
  config.out = (folder / "run").string();
  const std::string message = message_of<std::runtime_error>([&] { run(config); });
  EXPECT_NE(message.find("The state before this step is saved"), std::string::npos) << message;
}

// The streams are zero, so that norms multiply gradients by 1e33 where nothing but a finite loss
// comes out: those of the last block are finite, those below it are not.
void make_gradients_overflow(models::Model& model) {
  at::NoGradGuard no_grad;
  for (auto& named : model.named_parameters()) {
    const std::string& name = named.key();
    if (name.find("norm") != std::string::npos && name.ends_with("weight")) {
      named.value().fill_(1e30);
    } else if (name.find("blocks") == std::string::npos && name.find("head") == std::string::npos) {
      named.value().zero_();
    }
  }
}

TEST(InsideUpdates, AStepThatIsHalfTakenIsNotSaved) {
  const TemporaryFolder folder;
  TrainConfig config = small("vit_cifar");
  config.exact = false;
  config.streams = "float";
  config.mode = "stored";
  config.dropout = 0.0;
  config.drop_path = 0.0;
  config.initial_std = 0.0;
  const auto model = make_model(config, open_data(config), {});
  make_gradients_overflow(*model);
  config.weights = (folder / "large.safetensors").string();
  models::save_weights(*model, config.weights);
  config.update = "inside";
  config.out = (folder / "run").string();
  const std::string message = message_of<std::runtime_error>([&] { run(config); });
  EXPECT_EQ(message.find("step 1: the gradient of blocks."), 0U) << message;
  EXPECT_NE(message.find("so they are not saved"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(folder / "run/checkpoints"));

  config.clip = 1.0;  // sees all gradients first
  config.out = (folder / "clipped").string();
  const std::string clipped = message_of<std::runtime_error>([&] { run(config); });
  EXPECT_EQ(clipped.find("step 1: the gradient of blocks."), 0U) << clipped;
  EXPECT_NE(clipped.find("The state before this step is saved"), std::string::npos) << clipped;
}

TEST(InsideUpdates, AreRefusedWhereTheyAreNotDefined) {
  TrainConfig config = small("vit_cifar");
  config.update = "inside";
  config.accumulate = 2;
  const std::string message = message_of<FieldError>([&] { check(config); });
  EXPECT_EQ(message.find("update: expected after, because --accumulate is 2"), 0U) << message;
  config.update = "before";
  EXPECT_EQ(message_of<FieldError>([&] { check(config); }),
            "update: expected after or inside, got 'before'");
}

}  // namespace
}  // namespace pareprop::train
