#include "pareprop/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "pareprop/models/weights.h"
#include "pareprop/train/model_for_data.h"
#include "pareprop/train/predict.h"
#include "pareprop/train/trained_run.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

using io::testing::content;
using io::testing::message_of;
using io::testing::TemporaryFolder;

TrainConfig small(const std::filesystem::path& out) {
  TrainConfig config = testing::small_config(out);
  config.depth = {3};
  return config;
}

TrainResult run(const TrainConfig& config, const TrainEvents& events = {}) {
  return testing::train_alone(config, events);
}

std::vector<double> losses(const TrainResult& result) {
  std::vector<double> all;
  for (const StepRecord& record : result.steps) all.push_back(record.loss);
  return all;
}

// Stops after `steps` steps, as Ctrl-C does.
TrainEvents stopping_after(int steps) {
  auto done = std::make_shared<int>(0);
  TrainEvents events;
  events.stop_asked = [done, steps] { return ++*done >= steps; };
  return events;
}

TEST(Trainer, LearnsTheDigitsAndLeavesARun) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 150;
  config.eval_every = 75;
  config.batch = 32;
  const TrainResult result = run(config);
  EXPECT_EQ(result.end, TrainEnd::finished);
  EXPECT_GT(result.evaluation.accuracy, 0.6);
  EXPECT_LT(result.last_loss, losses(result).front());
  EXPECT_EQ(result.evaluations.size(), 2U);
  EXPECT_EQ(result.steps.size(), 150U);

  const TrainedRun loaded = load_run(folder / "run");
  EXPECT_EQ(loaded.class_names.size(), 10U);
  const TrainingData data = open_data(config);
  const auto batches = make_batches(config, data, *loaded.model, {});
  const auto group = distributed::make_process_group({});
  const Evaluation again = evaluate(*loaded.model, batches.test, *group);
  EXPECT_DOUBLE_EQ(again.loss, result.evaluation.loss);
  EXPECT_DOUBLE_EQ(again.accuracy, result.evaluation.accuracy);
}

TEST(Trainer, AStoppedRunGoesOnWithTheSameBits) {
  for (const bool exact : {false, true}) {
    const TemporaryFolder folder;
    TrainConfig whole = small(folder / "whole");
    whole.exact = exact;
    whole.dropout = 0.1;
    whole.drop_path = 0.1;
    whole.ema = 0.9;
    whole.accumulate = 2;
    const TrainResult expected = run(whole);

    TrainConfig parts = whole;
    parts.out = (folder / "parts").string();
    for (const int steps : {1, 4}) {
      const TrainResult stopped = run(parts, stopping_after(steps));
      EXPECT_EQ(stopped.end, TrainEnd::stopped_by_user);
      parts.resume = "auto";
    }
    const TrainResult last = run(parts);
    EXPECT_EQ(last.end, TrainEnd::finished);
    EXPECT_EQ(losses(last), losses(expected));
    EXPECT_EQ(content(folder / "parts/model.safetensors"),
              content(folder / "whole/model.safetensors"));
    ASSERT_EQ(last.evaluations.size(), expected.evaluations.size());
    EXPECT_EQ(last.evaluations.back().loss, expected.evaluations.back().loss);
  }
}

TEST(Trainer, ExactArithmeticGivesEveryModeTheSameLosses) {
  std::vector<double> expected;
  for (const char* mode : {"stored", "checkpoint", "reprop", "pareprop", "auto"}) {
    const TemporaryFolder folder;
    TrainConfig config = small(folder / "run");
    config.mode = mode;
    config.exact = true;
    config.dropout = 0.1;
    const std::vector<double> found = losses(run(config));
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << mode;
  }
}

TEST(Trainer, SmallBatchesAddUpToALargeOne) {
  for (const char* mode : {"stored", "pareprop"}) {
    const TemporaryFolder folder;
    TrainConfig large = small(folder / "large"), parts = small(folder / "parts");
    large.mode = parts.mode = mode;
    large.batch = 32;
    parts.batch = 8;
    parts.accumulate = 4;
    const auto expected = losses(run(large)), found = losses(run(parts));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5) << i;
  }
}

TEST(Trainer, RefusesAStepThatIsNotFinite) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.learning_rate = 1e30;
  config.warmup = 0.0;
  config.clip = 0.0;
  const std::string message = message_of<std::runtime_error>([&] { run(config); });
  EXPECT_NE(message.find("is not finite"), std::string::npos) << message;
  EXPECT_NE(message.find("The state before this step is saved"), std::string::npos) << message;
  EXPECT_TRUE(std::filesystem::exists(folder / "run/checkpoints"));
}

TEST(Trainer, NamesTheParameterThatIsNotFinite) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  const TrainingData data = open_data(config);
  const auto model = make_model(config, data, {});
  {
    at::NoGradGuard no_grad;
    model->named_parameters()["blocks.1.g.fc1.bias"][3].fill_(NAN);
  }
  config.weights = (folder / "nan.safetensors").string();
  models::save_weights(*model, config.weights);
  config.mode = "stored";
  config.initial_std = 0.0;
  const std::string message = message_of<std::runtime_error>([&] { run(config); });
  EXPECT_EQ(message.find("step 1: the parameter blocks.1.g.fc1.bias is not finite"), 0u) << message;
}

TEST(Trainer, GuardsAgainstLosingARun) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 2;
  run(config);
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(config); }).find("already holds a run"),
            std::string::npos);
  config.resume = "auto";
  config.batch = 8;
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(config); }).find("batch 16"),
            std::string::npos);
  config.batch = 16;
  config.resume = (folder / "none").string();
  EXPECT_THROW(run(config), std::runtime_error);
}

TEST(Trainer, PassesOverADamagedCheckpoint) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 4;
  config.save_every = 2;
  run(config);
  const auto newest = folder / "run/checkpoints/step-00000004/weights.safetensors";
  ASSERT_TRUE(std::filesystem::exists(newest));
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) - 1);
  config.resume = "auto";
  config.steps = 6;
  std::vector<std::string> messages;
  TrainEvents events;
  std::int64_t begun = -1;
  events.on_begin = [&](std::int64_t first, std::int64_t) { begun = first; };
  events.on_message = [&](const std::string& what) { messages.push_back(what); };
  run(config, events);
  EXPECT_EQ(begun, 2);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_NE(messages[0].find("not used"), std::string::npos) << messages[0];
  EXPECT_EQ(messages[1], "the checkpoint was trained with --steps 4, but now it is 6");
}

TEST(Trainer, SaysWhenNoCheckpointCanBeUsed) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 2;
  run(config);
  std::filesystem::resize_file(folder / "run/checkpoints/step-00000002/optimizer.safetensors", 10);
  const std::string metrics = content(folder / "run/metrics.jsonl");
  config.resume = "auto";
  EXPECT_NE(message_of<std::runtime_error>([&] { run(config); }).find("can be used"),
            std::string::npos);
  EXPECT_EQ(content(folder / "run/metrics.jsonl"), metrics);
}

TEST(Trainer, TheOlderOfTwoCheckpointsIsNotContinuedBesideTheNewer) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 4;
  config.save_every = 2;
  run(config);
  config.resume = (folder / "run/checkpoints/step-00000002").string();
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(config); }).find("is newer than"),
            std::string::npos);
  config.out = (folder / "branch").string();
  EXPECT_EQ(run(config).step, 4);
  EXPECT_EQ(content(folder / "branch/model.safetensors"),
            content(folder / "run/model.safetensors"));
}

TEST(Trainer, EpochsAreThoseOfTheDataWhateverIsAccumulated) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.steps = 0;
  config.epochs = 2;
  config.batch = 300;  // 1498 images: 4 batches an epoch
  config.accumulate = 3;
  EXPECT_EQ(run(config).step, 3);
}

TEST(Trainer, OneRunAtATimeInAFolder) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  TrainEvents events;
  std::string message;
  events.on_begin = [&](std::int64_t, std::int64_t) {
    message = message_of<std::invalid_argument>([&] { run(config); });
  };
  run(config, events);
  EXPECT_NE(message.find("another process trains in"), std::string::npos) << message;
}

TEST(Trainer, RefusesOptionsThatWouldDoNothing) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.seq_len = 64;
  EXPECT_THROW(run(config), std::invalid_argument);
  config.seq_len.reset();
  config.data = "persuasion";
  config.mixup = 0.1;
  EXPECT_THROW(run(config), std::invalid_argument);
}

// A kill between the checkpoint and the evaluation that was due.
TEST(Trainer, AnEvaluationThatIsDueComesFirst) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.eval_every = 4;
  const TrainResult stopped = run(config, stopping_after(4));
  EXPECT_EQ(stopped.step, 4);
  EXPECT_TRUE(stopped.evaluations.empty());
  config.resume = "auto";
  const TrainResult result = run(config);
  ASSERT_EQ(result.evaluations.size(), 3U);
  EXPECT_EQ(result.evaluations[0].step, 4);
}

TEST(Trainer, StopsEarlyWhenItDoesNotGetBetter) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.learning_rate = 1e-15;
  config.eval_every = 1;
  config.early_stop = 2;
  const TrainResult result = run(config);
  EXPECT_EQ(result.end, TrainEnd::stopped_early);
  EXPECT_EQ(result.step, 3);
}

TEST(Trainer, LearnsTextAndGuessesMasks) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.model = "roberta_base";
  config.width = 48;
  config.depth = {2};
  config.data = "persuasion";
  config.vocabulary = 400;
  config.seq_len = 32;
  config.steps = 60;
  config.eval_every = 60;
  config.dropout = 0.0;
  const TrainResult result = run(config);
  EXPECT_LT(result.evaluation.loss, std::log(400.0));
  EXPECT_LT(losses(result).back(), losses(result).front());

  TrainConfig other = config;
  other.vocabulary = 300;
  other.out = (folder / "other").string();
  other.steps = 1;
  run(other);
  config.tokenizer = (folder / "other/tokenizer").string();
  config.resume = "auto";
  config.steps = 61;
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              run(config);
            }).find("differs from the tokenizer of the run"),
            std::string::npos);

  const TrainedRun loaded = load_run(folder / "run");
  const auto guesses = predict_text(loaded, "Anne <mask> not <mask>.", 5);
  ASSERT_EQ(guesses.size(), 2U);
  ASSERT_EQ(guesses[0].size(), 5U);
  EXPECT_GE(guesses[0][0].probability, guesses[0][1].probability);
  EXPECT_THROW(predict_text(loaded, "nothing", 5), std::invalid_argument);
  EXPECT_THROW(predict_image(loaded, "x.png", 5), std::invalid_argument);
}

TEST(Trainer, ImagesThatAreMixedAndAugmentedTrainToo) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.mixup = 0.8;
  config.cutmix = 1.0;
  config.label_smoothing = 0.1;
  config.erase = 0.25;
  config.workers = 2;
  const TrainResult result = run(config);
  EXPECT_EQ(result.end, TrainEnd::finished);
}

TEST(Trainer, RecordsTheStepThatIsAskedFor) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "plain");
  config.accumulate = 2;
  const TrainResult without = run(config);
  config.out = (folder / "run").string();
  config.trace = 5;
  std::string said;
  TrainEvents events;
  events.on_message = [&](const std::string& what) { said += what + "\n"; };
  const TrainResult with = run(config, events);
  EXPECT_EQ(losses(with), losses(without));
  EXPECT_NE(said.find("trace of step 5: trace.json, trace.svg"), std::string::npos) << said;
  const std::string trace = content(folder / "run" / "trace.json");
  // Batches are numbered from 0.
  for (const char* expected :
       {"batch 8", "batch 9", "recover F0", "norm and optimizer", "step 5"}) {
    EXPECT_NE(trace.find(expected), std::string::npos) << expected;
  }
  EXPECT_EQ(trace.find("communication"), std::string::npos);
  EXPECT_NE(content(folder / "run" / "trace.svg").find("</svg>"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "plain" / "trace.json"));

  config.steps = 14;
  config.resume = "auto";
  run(config, events);
  EXPECT_NE(said.find("no trace: step 5 was before the checkpoint that the run resumed from"),
            std::string::npos)
      << said;
  config.trace = 15;
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(config); }).find("1 to 14, got 15"),
            std::string::npos);
}

TEST(Trainer, ATraceThatCannotBeWrittenDoesNotEndTheRun) {
  const TemporaryFolder folder;
  TrainConfig config = small(folder / "run");
  config.trace = 2;
  std::filesystem::create_directories(folder / "run" / "trace.json" / "in the way");
  std::string said;
  TrainEvents events;
  events.on_message = [&](const std::string& what) { said += what + "\n"; };
  EXPECT_EQ(run(config, events).end, TrainEnd::finished);
  EXPECT_NE(said.find("trace of step 2 could not be written"), std::string::npos) << said;
}

}  // namespace
}  // namespace pareprop::train
