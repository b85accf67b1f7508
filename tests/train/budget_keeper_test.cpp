#include "pareprop/train/budget_keeper.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <stdexcept>

#include "pareprop/io/input_file.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/train/trainer.h"
#include "tests/io/temporary_folder.h"
#include "tests/random_cases.h"

namespace pareprop::train {
namespace {

using io::testing::message_of;
using io::testing::TemporaryFolder;

class BudgetKeeperTest : public ::testing::Test {
 protected:
  BudgetKeeperTest() {
    memory::install_caching_allocator();
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    config_.model = "vit_cifar";
    config_.data = "digits";
    config_.batch = 64;
    config_.steps = 4;
    config_.log_every = 1;
  }
  ~BudgetKeeperTest() override { unsetenv("XDG_CACHE_HOME"); }

  // In a folder of its own, unless it goes on.
  TrainResult run(const TrainEvents& events = {}) {
    if (config_.resume.empty()) config_.out = (folder_ / std::to_string(++runs_)).string();
    const auto group = distributed::make_process_group({});
    return train(config_, *group, events);
  }

  TrainEvents listening() {
    TrainEvents events;
    events.on_message = [this](const std::string& what) { said_ += what + "\n"; };
    return events;
  }

  void expect_kept(const TrainResult& result) {
    const auto peak = static_cast<double>(result.memory.total_peak);
    EXPECT_GT(result.budget_bytes, 0);
    EXPECT_LE(result.memory.total_peak, result.budget_bytes) << said_;
    EXPECT_NEAR(static_cast<double>(result.predicted_peak_bytes) / peak, 1.0, 0.05) << said_;
    EXPECT_EQ(result.steps.back().predicted_peak_bytes, result.predicted_peak_bytes);
  }

  TemporaryFolder folder_;
  TrainConfig config_;
  std::string said_;
  int runs_ = 0;
};

TEST_F(BudgetKeeperTest, RunsKeepTheirBudget) {
  for (const char* budget : {"21MiB", "23MiB", "26MiB", "64MiB"}) {
    config_.budget = budget;
    const TrainResult result = run(listening());
    expect_kept(result);
  }
  EXPECT_NE(said_.find("plan: at most"), std::string::npos);
  EXPECT_NE(said_.find("stored SSSSSS"), std::string::npos) << said_;
}

// Totals between the least and what stored training takes, with every optimizer, update and
// allowance.
TEST_F(BudgetKeeperTest, RandomTotalsAreKept) {
  const int cases = pareprop::testing::case_count(5);
  std::mt19937_64 random(pareprop::testing::case_seed(20261119));
  const auto below = [&](std::uint64_t bound) {
    return static_cast<std::int64_t>(random() % bound);
  };
  for (int i = 0; i < cases; ++i) {
    config_ = {};
    config_.steps = 3;
    config_.log_every = 1;
    config_.clip = 0.0;
    config_.batch = 4 * (1 + below(8));
    config_.width = 48 * (1 + below(3));
    config_.depth = {static_cast<int>(2 + below(3))};
    if (below(4) == 0) {
      config_.model = "roberta_base";
      config_.data = "persuasion";
      config_.vocabulary = 600;
      config_.seq_len = 32;
    } else {
      config_.model = std::vector<std::string>{"vit_cifar", "swin_cifar", "mvit_cifar"}[below(3)];
      config_.data = "digits";
    }
    config_.plain = config_.model == "vit_cifar" && below(3) == 0;
    config_.precision = below(2) == 0 ? "fp32" : "bf16";
    config_.optimizer = below(3) == 0 ? "sgd" : "adamw";
    config_.optimizer_state = std::vector<std::string>{"fp32", "bf16", "8bit"}[below(3)];
    config_.update = below(2) == 0 ? "after" : "inside";
    if (config_.update == "after") config_.accumulate = 1 + below(2);
    if (below(3) == 0) config_.ema = 0.9;
    if (below(3) == 0) {
      config_.allow = config_.accumulate > 1 ? "lean-state" : "lean-state,update-inside";
    }
    said_ = "case " + std::to_string(i) + ": " + to_json(config_) + "\n";
    SCOPED_TRACE(said_);

    std::int64_t least = 0, stored = 0;
    {
      const TrainingData data = open_data(config_);
      BudgetKeeper keeper(config_, data, {}, nullptr);
      keeper.plan_by_shapes([&](plan::JointSearch& search, const plan::JointPlan&) {
        plan::JointPlan leanest = search.best(0);
        search.add_figures(leanest);
        // A run holds a few hundred bytes besides, which are known when it is made.
        least = leanest.micro.smallest_budget + 1024;
        stored = search.in_mode(Mode::stored, 0).micro.predicted.total_peak;
      });
    }
    ASSERT_GT(least, 0);
    config_.budget =
        std::to_string(least + std::max(stored - least, least / 10) * below(12) / 10) + "B";
    expect_kept(run(listening()));
  }
}

// The run measures steps when its weights and the optimizer's state are there already. That the
// times cannot be saved is said right after it, before peaks are reset.
TEST_F(BudgetKeeperTest, MeasuringKeepsTheBudgetToo) {
  std::ofstream(folder_ / "file") << "not a folder";
  setenv("XDG_CACHE_HOME", (folder_ / "file").c_str(), 1);
  config_.batch = 16;
  config_.width = 256;
  config_.clip = 0.0;
  config_.update = "inside";
  const auto predicted = [&](const char* mode) {
    config_.mode = mode;
    const TrainingData data = open_data(config_);
    BudgetKeeper keeper(config_, data, {}, nullptr);
    std::int64_t at_most = 0;
    keeper.plan_by_shapes([&](plan::JointSearch&, const plan::JointPlan& plan) {
      at_most = plan.micro.predicted.at_most;
    });
    return at_most;
  };
  const std::int64_t budget = predicted("pareprop");
  ASSERT_LT(budget, predicted("stored"));
  config_.mode = "auto";
  config_.budget = std::to_string(budget) + "B";
  std::int64_t peak = 0;
  TrainEvents events;
  events.on_message = [&](const std::string& what) {
    if (what.find("could not be saved") != std::string::npos) peak = memory::usage().total_peak;
  };
  expect_kept(run(events));
  EXPECT_GT(peak, 0) << "nothing was measured";
  EXPECT_LE(peak, budget);
}

TEST_F(BudgetKeeperTest, OtherKindsOfRunsToo) {
  config_.budget = "48MiB";
  config_.ema = 0.9;
  config_.accumulate = 2;
  config_.precision = "bf16";
  expect_kept(run());
  config_ = {};
  config_.model = "roberta_base";
  config_.depth = {3};
  config_.width = 96;
  config_.seq_len = 32;
  config_.data = "persuasion";
  config_.vocabulary = 600;
  config_.budget = "24MiB";
  config_.batch = 8;
  config_.steps = 2;
  config_.log_every = 1;
  expect_kept(run());
}

TEST_F(BudgetKeeperTest, WhatDoesNotFitIsRefusedBeforeTheFirstStep) {
  config_.budget = "15MiB";
  const std::string message = message_of<std::invalid_argument>([&] { run(); });
  EXPECT_NE(
      message.find("budget: vit_cifar with batch 64 does not fit in 15.0 MiB (15728640 bytes)"),
      std::string::npos)
      << message;
  EXPECT_NE(message.find("the smallest budget for this batch is"), std::string::npos) << message;
  config_.mode = "stored";
  config_.budget = "22MiB";
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(); }).find("in mode stored"),
            std::string::npos);
  config_.budget = "22";
  EXPECT_NE(message_of<std::invalid_argument>([&] { run(); }).find("unit is missing"),
            std::string::npos);
}

TEST_F(BudgetKeeperTest, SaysWhichFlagsWouldFit) {
  config_.batch = 1;
  const auto advice = [&](const char* budget) {
    config_.budget = budget;
    const std::string message = message_of<std::invalid_argument>([&] { run(); });
    const std::string before = "; --", after = " would fit";
    const auto end = message.find(after), begin = message.rfind(before, end);
    return end == std::string::npos ? message : message.substr(begin + 2, end - begin - 2);
  };
  EXPECT_EQ(advice("13500KiB"), "--optimizer-state 8bit");
  EXPECT_EQ(advice("11MiB"), "--update inside --optimizer-state 8bit");
  config_.update = "inside";
  config_.optimizer_state = "8bit";
  EXPECT_EQ(run().step, config_.steps);
  EXPECT_NE(advice("3MiB").find("does not fit"), std::string::npos);
}

// What is advised is done: then the run fits.
TEST_F(BudgetKeeperTest, AdviceInAModeIsOfThatModeOrNamesAnother) {
  config_.steps = 1;
  const auto refusal = [&] { return message_of<std::invalid_argument>([&] { run(); }); };
  config_.batch = 1;
  config_.mode = "stored";
  config_.budget = "14MiB";
  std::string message = refusal();
  EXPECT_NE(message.find("; --optimizer-state 8bit would fit"), std::string::npos) << message;
  EXPECT_EQ(message.find("--allow"), std::string::npos) << message;
  config_.optimizer_state = "8bit";
  EXPECT_EQ(run().step, 1);

  config_.model = "vit_digits";
  config_.batch = 8;
  config_.optimizer_state = "fp32";
  config_.budget = "5MiB";
  message = refusal();
  EXPECT_NE(message.find("; --mode auto --optimizer-state 8bit would fit"), std::string::npos)
      << message;
  config_.mode = "auto";
  config_.optimizer_state = "8bit";
  EXPECT_EQ(run().step, 1);
}

TEST_F(BudgetKeeperTest, TheSmallestBudgetOfAModeIsWhereItFits) {
  config_.steps = 1;
  config_.batch = 8;
  config_.mode = "stored";
  config_.budget = "5MiB";
  const std::string message = message_of<std::invalid_argument>([&] { run(); });
  const std::string before = "the smallest budget for this batch is ";
  const auto begin = message.find('(', message.find(before)), end = message.find(' ', begin);
  ASSERT_NE(begin, std::string::npos) << message;
  // A run holds a few hundred bytes besides, which are known when it is made.
  config_.budget = std::to_string(std::stoll(message.substr(begin + 1, end - begin)) + 1024) + "B";
  EXPECT_EQ(run().step, 1);
}

TEST_F(BudgetKeeperTest, WhatCannotFitInTheMachineIsRefusedBeforeTheNetworkIsMade) {
  config_.model = "vit_gigantic";
  config_.batch = 1 << 16;
  for (const char* mode : {"auto", "reprop", "stored"}) {
    config_.mode = mode;
    memory::trim();
    const std::int64_t before = memory::pool_usage().mapped;
    const std::string message = message_of<std::invalid_argument>([&] { run(listening()); });
    for (const char* part :
         {"not enough memory (limited by ", "): vit_gigantic", "with batch 65536 does not fit in",
          "weights ", "gradients ", "optimizer ", "activations ", "mostly activations",
          "--force trains anyway"}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
    }
    // Weights alone have 7 GiB, and the pool would keep them.
    EXPECT_LT(memory::pool_usage().mapped - before, std::int64_t{64} << 20) << mode;
  }
}

TEST_F(BudgetKeeperTest, ForceGoesOn) {
  config_.budget = "15MiB";
  config_.force = true;
  EXPECT_EQ(run(listening()).step, 4);
  EXPECT_NE(said_.find("training anyway because of --force: vit_cifar with batch 64 does not fit"),
            std::string::npos)
      << said_;
  EXPECT_EQ(said_.find("training anyway"), said_.rfind("training anyway")) << said_;
}

TEST_F(BudgetKeeperTest, ProcessesOfAMachineDivideWhatIsFree) {
  const TrainingData data = open_data(config_);
  const auto budget = [&](const Processes& processes) {
    BudgetKeeper keeper(config_, data, processes, nullptr);
    std::int64_t bytes = 0;
    keeper.plan_by_shapes(
        [&](plan::JointSearch&, const plan::JointPlan& plan) { bytes = plan.micro.budget; });
    return static_cast<double>(bytes);
  };
  const double alone = budget({});
  EXPECT_LT(budget({.all = 8, .on_device = 8}), 0.2 * alone);
  EXPECT_GT(budget({.all = 8, .on_device = 1}), 0.8 * alone);
}

TEST_F(BudgetKeeperTest, CountsTheShareOfAProcess) {
  config_.batch = 1;
  config_.mode = "reprop";
  config_.budget = "1GiB";
  const TrainingData data = open_data(config_);
  const auto predicted = [&](const char* shard, const Processes& processes) {
    config_.shard = shard;
    BudgetKeeper keeper(config_, data, processes, nullptr);
    plan::Prediction prediction;
    keeper.plan_by_shapes([&](plan::JointSearch&, const plan::JointPlan& plan) {
      prediction = plan.micro.predicted;
    });
    return prediction;
  };
  const auto part = [](const plan::Prediction& of, const plan::Prediction& whole, memory::Tag tag) {
    return static_cast<double>(of.peak_of(tag)) / static_cast<double>(whole.peak_of(tag));
  };
  const plan::Prediction alone = predicted("none", {});
  EXPECT_EQ(predicted("gradients", {}).total_peak, alone.total_peak);
  for (const int all : {2, 3}) {
    for (int rank = 0; rank < all; ++rank) {
      const Processes processes{.all = all, .on_device = all, .rank = rank};
      const plan::Prediction none = predicted("none", processes);
      const plan::Prediction state = predicted("state", processes);
      const plan::Prediction gradients = predicted("gradients", processes);
      EXPECT_EQ(part(none, alone, memory::Tag::optimizer), 1.0);
      EXPECT_NEAR(part(state, alone, memory::Tag::optimizer) * all, 1.0, 0.02);
      EXPECT_NEAR(part(gradients, alone, memory::Tag::optimizer) * all, 1.0, 0.02);
      EXPECT_EQ(part(state, alone, memory::Tag::gradients), 1.0);
      // Those of two blocks are alive besides.
      EXPECT_GT(part(gradients, alone, memory::Tag::gradients) * all, 1.0);
      EXPECT_LT(part(gradients, alone, memory::Tag::gradients), 0.95);
      EXPECT_LT(state.total_peak, none.total_peak);
      EXPECT_LT(gradients.total_peak, state.total_peak);
    }
  }
  config_.shard = "none";
  config_.mode = "auto";
  config_.budget = "11MiB";
  BudgetKeeper keeper(config_, data, {.all = 4, .on_device = 4}, nullptr);
  const std::string message = message_of<std::invalid_argument>([&] { keeper.expect_to_fit(); });
  EXPECT_NE(message.find("; --shard gradients --update inside would fit"), std::string::npos)
      << message;
}

TEST_F(BudgetKeeperTest, PlansAreTightenedWhenSomethingElseTakesMemory) {
  config_.budget = "28MiB";
  config_.steps = config_.trace = 6;
  at::Tensor other;
  TrainEvents events = listening();
  events.on_step = [&](const StepRecord& record, std::int64_t, double) {
    if (record.step == 2) other = at::empty({4 << 20}, at::kByte);
  };
  const TrainResult result = run(events);
  EXPECT_EQ(result.step, 6);
  EXPECT_NE(said_.find("stored SSSSSS"), std::string::npos) << said_;
  EXPECT_NE(said_.find("; the new plan is "), std::string::npos) << said_;
  EXPECT_LE(result.steps.back().peak_bytes, result.budget_bytes);
  // Whoever watches the stacks still does after their plans have changed.
  const std::string trace = io::read_text_file(std::filesystem::path(config_.out) / "trace.json");
  EXPECT_NE(trace.find("lane 0 gradient"), std::string::npos);
}

TEST_F(BudgetKeeperTest, StopsAndSavesWhenNothingLeanerIsLeft) {
  config_.budget = "28MiB";
  at::Tensor other;
  TrainEvents events = listening();
  events.on_step = [&](const StepRecord&, std::int64_t, double) {
    other = at::empty({64 << 20}, at::kByte);
  };
  const std::string message = message_of<std::runtime_error>([&] { run(events); });
  EXPECT_NE(message.find("the budget cannot be kept, because there is no leaner plan"),
            std::string::npos)
      << message;
  other.reset();
  config_.resume = "auto";
  EXPECT_EQ(run().step, 4);
}

}  // namespace
}  // namespace pareprop::train
