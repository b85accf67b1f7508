// What a run leaves behind when it ends in ways that nobody planned, and what it refuses to touch.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/io/safetensors.h"
#include "pareprop/train/trained_run.h"
#include "pareprop/train/trainer.h"
#include "tests/io/limited_child.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

namespace fs = std::filesystem;
using io::testing::content;
using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;
using testing::train_alone;

TrainConfig tiny(const fs::path& out) {
  TrainConfig config = testing::small_config(out);
  config.mode = "reprop";
  config.eval_every = 4;
  return config;
}

struct Killed : std::exception {};

// Ends the run in the middle, without a chance to save, as a kill does.
TrainEvents killed_after(std::int64_t step) {
  TrainEvents events;
  events.on_step = [step](const StepRecord& record, std::int64_t, double) {
    if (record.step == step) throw Killed();
  };
  return events;
}

std::vector<std::string> checkpoints(const TrainConfig& config) {
  std::vector<std::string> names;
  if (!fs::exists(fs::path(config.out) / "checkpoints")) return names;
  for (const auto& entry : fs::directory_iterator(fs::path(config.out) / "checkpoints")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::string> all_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files[entry.path().string()] =
        content(entry.path()) + std::to_string(entry.last_write_time().time_since_epoch().count());
  }
  return files;
}

struct Messages {
  std::string all;
  TrainEvents events() {
    TrainEvents events;
    events.on_message = [this](const std::string& what) { all += what + "\n"; };
    return events;
  }
  bool has(const std::string& part) const { return all.find(part) != std::string::npos; }
};

TEST(SafeRun, AKilledRunHasACheckpointOfEveryEvaluation) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  EXPECT_THROW(train_alone(config, killed_after(10)), Killed);
  EXPECT_EQ(checkpoints(config), (std::vector<std::string>{"step-00000004", "step-00000008"}));

  config.resume = "auto";
  Messages messages;
  train_alone(config, messages.events());
  EXPECT_TRUE(messages.has("step-00000008")) << messages.all;
  TrainConfig whole = tiny(folder / "whole");
  train_alone(whole);
  EXPECT_EQ(content(folder / "run/model.safetensors"), content(folder / "whole/model.safetensors"));
  EXPECT_EQ(content(folder / "run/best.safetensors"), content(folder / "whole/best.safetensors"));
}

TEST(SafeRun, ACheckpointIsSavedAfterSoManyMinutes) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.eval_every = 100;
  config.save_minutes = 1e-9;
  EXPECT_THROW(train_alone(config, killed_after(3)), Killed);
  EXPECT_EQ(checkpoints(config), (std::vector<std::string>{"step-00000001", "step-00000002"}));
}

TEST(SafeRun, NoCheckpointsIfNoneAreAskedForAndTheRiskIsSaid) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.save_every = 0;
  config.save_minutes = 1e-9;
  Messages messages;
  TrainEvents events = messages.events();
  events.on_step = killed_after(6).on_step;
  EXPECT_THROW(train_alone(config, events), Killed);
  EXPECT_TRUE(checkpoints(config).empty());
  EXPECT_TRUE(messages.has("--save-every 0")) << messages.all;
  EXPECT_TRUE(messages.has("start again")) << messages.all;
}

TEST(SafeRun, WithoutACheckpointTheEarlierAttemptIsKept) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  EXPECT_THROW(train_alone(config, killed_after(3)), Killed);
  const std::string metrics = content(folder / "run/metrics.jsonl");
  EXPECT_FALSE(metrics.empty());
  config.resume = "auto";
  Messages messages;
  train_alone(config, messages.events());
  EXPECT_TRUE(messages.has("no checkpoint")) << messages.all;
  EXPECT_TRUE(messages.has("metrics-1.jsonl")) << messages.all;
  EXPECT_EQ(content(folder / "run/metrics-1.jsonl"), metrics);
  EXPECT_TRUE(fs::exists(folder / "run/tensorboard-1"));
}

TEST(SafeRun, NothingThatIsThereIsOverwritten) {
  for (const char* name : {"config.json", "metrics.jsonl", "model.safetensors", "best.safetensors",
                           "run.html", "classes.json", "tokenizer", "tensorboard"}) {
    const TemporaryFolder folder;
    TrainConfig config = tiny(folder / "run");
    fs::create_directories(folder / "run");
    put(folder / ("run/" + std::string(name)), "{\"mine\": 1}");
    for (const char* resume : {"", "auto"}) {
      config.resume = resume;
      const std::string message = message_of<std::invalid_argument>([&] { train_alone(config); });
      EXPECT_NE(message.find("--out"), std::string::npos) << message;
      EXPECT_EQ(content(folder / ("run/" + std::string(name))), "{\"mine\": 1}") << name;
    }
  }
}

TEST(SafeRun, TrainedWeightsWithoutACheckpointAreNotOverwritten) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  train_alone(config);
  fs::remove_all(folder / "run/checkpoints");
  const std::string weights = content(folder / "run/model.safetensors");
  config.resume = "auto";
  EXPECT_NE(message_of<std::invalid_argument>([&] { train_alone(config); }).find("--weights"),
            std::string::npos);
  EXPECT_EQ(content(folder / "run/model.safetensors"), weights);
}

TEST(SafeRun, ABranchOfAnotherRunNeedsAFolderOfItsOwn) {
  const TemporaryFolder folder;
  TrainConfig first = tiny(folder / "first"), second = tiny(folder / "second");
  second.steps = 4;
  train_alone(first);
  train_alone(second);
  const std::string metrics = content(folder / "second/metrics.jsonl");
  second.resume = (folder / "first/checkpoints/step-00000008").string();
  second.steps = 12;
  EXPECT_NE(message_of<std::invalid_argument>([&] { train_alone(second); }).find("holds a run"),
            std::string::npos);
  EXPECT_EQ(content(folder / "second/metrics.jsonl"), metrics);
}

TEST(SafeRun, ARunThatCannotStartLeavesNoFolder) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "deep/down/run");
  config.batch = 100000;
  EXPECT_THROW(train_alone(config), std::invalid_argument);
  EXPECT_FALSE(fs::exists(folder / "deep"));
}

TEST(SafeRun, AFolderThatIsGoneEndsTheRun) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny(folder / "run");
  TrainEvents events;
  std::int64_t last = 0;
  events.on_step = [&](const StepRecord& record, std::int64_t, double) {
    last = record.step;
    if (last == 2) fs::rename(folder / "run", folder / "elsewhere");
  };
  const std::string message = message_of<std::runtime_error>([&] { train_alone(config, events); });
  EXPECT_NE(message.find("was removed or replaced"), std::string::npos) << message;
  EXPECT_EQ(last, 2);
  EXPECT_FALSE(fs::exists(folder / "run"));
}

TEST(SafeRun, TheBestWeightsAreKeptBesideTheLast) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.eval_every = 1;
  config.learning_rate = 0.3;  // too high: it gets worse, and streams could not be recovered
  config.mode = "stored";
  config.decay = "constant";
  config.warmup = 0.5;
  const TrainResult result = train_alone(config);
  const auto best = std::min_element(result.evaluations.begin(), result.evaluations.end(),
                                     [](auto& a, auto& b) { return a.loss < b.loss; });
  ASSERT_LT(best->step, 12);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_EQ(result.best->step, best->step);
  EXPECT_EQ(result.best->evaluation_loss, best->loss);

  const auto group = distributed::make_process_group({});
  const auto loss = [&](WhichWeights which) {
    const TrainedRun run = load_run(folder / "run", which);
    const TrainingData data = open_data(config);
    return evaluate(*run.model, make_batches(config, data, *run.model, {}).test, *group).loss;
  };
  EXPECT_DOUBLE_EQ(loss(WhichWeights::best), best->loss);
  EXPECT_DOUBLE_EQ(loss(WhichWeights::last), result.evaluations.back().loss);
  EXPECT_EQ(load_run(folder / "run").weights,
            "the best weights, of step " + std::to_string(best->step) + " (best.safetensors)");
}

TEST(SafeRun, DamagedWeightsAreNotUsed) {
  const TemporaryFolder folder;
  train_alone(tiny(folder / "run"));
  for (const char* name : {"model.safetensors", "best.safetensors"}) {
    const fs::path file = folder / "run" / name;
    const WhichWeights which = file.stem() == "best" ? WhichWeights::best : WhichWeights::last;
    const std::string whole = content(file);
    for (const std::size_t at : {whole.size() / 2, whole.size() - 1}) {
      std::string flipped = whole;
      flipped[at] = static_cast<char>(flipped[at] ^ 1);
      put(file, flipped);
      EXPECT_THROW(load_run(folder / "run", which), std::runtime_error) << name << " " << at;
    }
    put(file, whole);
    load_run(folder / "run", which);
  }
}

TEST(SafeRun, AfterAnEarlyStopTheBestWeightsAreTheModels) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.eval_every = 1;
  config.steps = 40;
  config.learning_rate = 1.0;
  config.decay = "constant";
  config.warmup = 0.2;
  config.early_stop = 2;
  const TrainResult result = train_alone(config);
  ASSERT_EQ(result.end, TrainEnd::stopped_early);
  ASSERT_TRUE(result.best.has_value());
  EXPECT_EQ(result.best->step, result.step - 2);
  EXPECT_EQ(content(folder / "run/model.safetensors"), content(folder / "run/best.safetensors"));

  const auto before = all_files(folder / "run");
  config.resume = "auto";
  EXPECT_EQ(train_alone(config).end, TrainEnd::nothing_to_do);
  EXPECT_EQ(all_files(folder / "run"), before);
}

TEST(SafeRun, ThePageIsWrittenAtEveryEvaluation) {
  const TemporaryFolder folder;
  const TrainConfig config = tiny(folder / "run");
  TrainEvents events;
  std::vector<std::string> pages;
  events.on_evaluation = [&](const EvaluationRecord&) {
    pages.push_back(content(folder / "run/run.html"));
  };
  train_alone(config, events);
  ASSERT_EQ(pages.size(), 3U);
  EXPECT_NE(pages[0].find("4 of 12 steps"), std::string::npos);
  EXPECT_NE(pages[1].find("8 of 12 steps"), std::string::npos);
  EXPECT_NE(content(folder / "run/run.html").find("Finished: 12 of 12 steps"), std::string::npos);
}

TEST(SafeRun, WhatKilledProcessesLeftIsRemoved) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  EXPECT_THROW(train_alone(config, killed_after(10)), Killed);
  const fs::path left = folder / "run/model.safetensors.partial-999999999-0";
  put(left, "half");
  config.resume = "auto";
  train_alone(config);
  EXPECT_FALSE(fs::exists(left));
}

// A mean that is another number still would give other answers, and nobody would know.
TEST(SafeRun, DamageOfTheClassesFileIsFound) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.steps = 1;
  train_alone(config);
  EXPECT_NO_THROW(load_run(folder / "run"));
  std::string text = content(folder / "run/classes.json");
  text.replace(text.find("0.30"), 4, "0.31");
  put(folder / "run/classes.json", text);
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              load_run(folder / "run");
            }).find("damaged or edited"),
            std::string::npos);
}

TEST(SafeRun, AFinishedRunIsLeftAsItIs) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  train_alone(config);
  const auto before = all_files(folder / "run");
  config.resume = "auto";
  const TrainResult again = train_alone(config);
  EXPECT_EQ(again.end, TrainEnd::nothing_to_do);
  EXPECT_EQ(again.step, 12);
  EXPECT_EQ(all_files(folder / "run"), before);

  config.steps = 11;
  const std::string message = message_of<std::invalid_argument>([&] { train_alone(config); });
  EXPECT_NE(message.find("has done 12 already"), std::string::npos) << message;
  EXPECT_EQ(all_files(folder / "run"), before);
}

// The averages are in the place of the weights while they are evaluated.
TEST(SafeRun, ARunThatIsStoppedWhileItEvaluatesSavesFirst) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  config.ema = 0.9;
  TrainConfig whole = config;
  whole.out = (folder / "whole").string();
  train_alone(whole);

  bool asked = false;
  std::int64_t batches = 0;
  TrainEvents events;
  events.on_evaluating = [&](std::int64_t done, std::int64_t all) {
    ASSERT_GT(all, 2);
    batches = done;
    asked = done == 2;
  };
  events.stop_asked = [&] { return asked; };
  const TrainResult stopped = train_alone(config, events);
  EXPECT_EQ(stopped.end, TrainEnd::stopped_by_user);
  EXPECT_EQ(batches, 2);
  EXPECT_TRUE(stopped.evaluations.empty());
  EXPECT_EQ(checkpoints(config), (std::vector<std::string>{"step-00000004"}));

  config.resume = "auto";
  const TrainResult last = train_alone(config);
  EXPECT_EQ(last.evaluations.size(), 3U);
  EXPECT_EQ(content(folder / "run/model.safetensors"), content(folder / "whole/model.safetensors"));
}

// With averages in the place of the weights, which are what is saved.
TEST(SafeRun, ACheckpointThatBecomesDueDuringAnEvaluationIsSaved) {
  const TemporaryFolder folder, killed;
  TrainConfig config = tiny(folder / "run");
  config.ema = 0.9;
  TrainConfig whole = config;
  whole.out = (folder / "whole").string();
  train_alone(whole);

  constexpr double kSeconds = 2.0;
  config.save_minutes = kSeconds / 60.0;
  TrainEvents events;
  events.on_evaluating = [&](std::int64_t done, std::int64_t) {
    if (done == 1) std::this_thread::sleep_for(std::chrono::duration<double>(kSeconds));
    if (done != 3) return;
    // An exception alone would have the state saved, which a kill has not.
    fs::copy(folder / "run", killed / "run", fs::copy_options::recursive);
    throw Killed();
  };
  EXPECT_THROW(train_alone(config, events), Killed);
  config.out = (killed / "run").string();
  EXPECT_EQ(checkpoints(config), (std::vector<std::string>{"step-00000004"}));
  config.resume = "auto";
  train_alone(config);
  EXPECT_EQ(content(killed / "run/model.safetensors"), content(folder / "whole/model.safetensors"));
}

TEST(SafeRun, AFullDiskLeavesNoHalfLineInTheLogs) {
  for (const rlim_t limit : {500U, 701U, 999U}) {
    const TemporaryFolder folder;
    const auto result = io::testing::run_limited(limit, io::testing::AtLimit::error, [&] {
      MetricsLog log(folder.path(), 0, 0);
      for (std::int64_t step = 1; step < 100; ++step) log.add(StepRecord{.step = step});
    });
    EXPECT_NE(result.error.find("too large"), std::string::npos) << result.error;
    EXPECT_TRUE(content(folder / "metrics.jsonl").ends_with("}\n"));
    // What is not whole is cut off when the file is opened.
    const fs::path events = folder / "tensorboard/events.out.tfevents.pareprop";
    const auto size = fs::file_size(events);
    const io::EventFile again(folder / "tensorboard");
    EXPECT_EQ(fs::file_size(events), size);
  }
}

TEST(SafeRun, AnEvaluationOfNothingIsNeverTheBest) {
  const TemporaryFolder folder;
  const auto model = testing::small_vit(1);
  BestWeights best(folder / "best.safetensors");
  best.offer(*model, 1, {.loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_FALSE(best.best());
  EXPECT_FALSE(fs::exists(folder / "best.safetensors"));
}

TEST(SafeRun, TimeIsThatOfTheWholeRun) {
  const TemporaryFolder folder;
  TrainConfig config = tiny(folder / "run");
  EXPECT_THROW(train_alone(config, killed_after(10)), Killed);
  config.resume = "auto";
  const TrainResult result = train_alone(config);
  EXPECT_GT(result.seconds_in_all, result.seconds);
  EXPECT_NE(content(folder / "run/run.html").find("since the run was resumed"), std::string::npos);
}

}  // namespace
}  // namespace pareprop::train
