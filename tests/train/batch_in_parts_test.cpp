// Runs whose batches are computed in parts.

#include <gtest/gtest.h>

#include <cstdlib>

#include "pareprop/io/input_file.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/train/budget_keeper.h"
#include "pareprop/train/train_step.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/small_run.h"

namespace pareprop::train {
namespace {

using io::testing::message_of;
using io::testing::TemporaryFolder;

class BatchInParts : public ::testing::Test {
 protected:
  BatchInParts() {
    memory::install_caching_allocator();
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~BatchInParts() override { unsetenv("XDG_CACHE_HOME"); }

  TrainConfig config(const std::string& name) const {
    TrainConfig made = testing::small_config(folder_ / name);
    made.mode = "auto";
    made.width = 64;
    made.depth = {4};
    made.batch = 32;
    made.steps = 6;
    made.eval_every = 3;
    made.dropout = 0.2;
    made.drop_path = 0.2;
    made.mixup = 0.4;
    made.erase = 0.3;
    return made;
  }

  // So little that the whole batch does not fit in any mode; or that, without `parts`, nothing does
  // unless the state of the optimizer is smaller.
  std::string small_budget(const TrainConfig& made, bool parts = true) const {
    const TrainingData data = open_data(made);
    BudgetKeeper keeper(made, data, {}, nullptr);
    std::int64_t budget = 0;
    keeper.plan_by_shapes([&](plan::JointSearch& search, const plan::JointPlan&) {
      plan::JointPlan leanest = search.best(0);
      search.add_figures(leanest);
      const std::int64_t least = leanest.micro.smallest_budget;
      const std::int64_t whole = search.planner().plan_step(0).smallest_budget;
      ASSERT_LT(least, whole);
      std::int64_t weights = 0;
      for (const at::Tensor& weight : search.planner().network().weights()) {
        weights += static_cast<std::int64_t>(weight.nbytes());
      }
      budget = parts ? least + (whole - least) / 2 : least - weights / 2;
    });
    return std::to_string(budget / 1024) + "KiB";
  }

  TrainEvents listening() {
    TrainEvents events;
    events.on_message = [this](const std::string& what) { said_ += what + "\n"; };
    return events;
  }

  static std::vector<double> losses_of(const TrainResult& result) {
    std::vector<double> all;
    for (const StepRecord& step : result.steps) all.push_back(step.loss);
    return all;
  }

  TemporaryFolder folder_;
  std::string said_;
};

TEST_F(BatchInParts, HasTheLossesOfWholeBatchesAndKeepsItsBudget) {
  const TrainResult whole = testing::train_alone(config("whole"));
  EXPECT_EQ(whole.parts, 1);
  TrainConfig cut = config("cut");
  cut.budget = small_budget(cut);
  const TrainResult found = testing::train_alone(cut, listening());
  EXPECT_GT(found.parts, 1) << said_;
  EXPECT_NE(said_.find(" parts of "), std::string::npos) << said_;
  EXPECT_LE(found.memory.total_peak, found.budget_bytes) << said_;
  const auto expected = losses_of(whole), got = losses_of(found);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    EXPECT_NEAR(found.steps[i].accuracy, whole.steps[i].accuracy, 0.05) << i;
    EXPECT_NEAR(found.steps[i].gradient_norm / whole.steps[i].gradient_norm, 1.0, 1e-3) << i;
  }
  EXPECT_NEAR(found.evaluation.loss, whole.evaluation.loss, 1e-3);
  EXPECT_EQ(found.evaluation.rows, whole.evaluation.rows);
}

TEST_F(BatchInParts, AStoppedRunGoesOnWithTheSameBits) {
  TrainConfig whole = config("once");
  whole.exact = true;
  whole.budget = small_budget(whole);
  const TrainResult expected = testing::train_alone(whole);
  ASSERT_GT(expected.parts, 1);

  TrainConfig stopped = config("stopped");
  stopped.exact = true;
  stopped.budget = whole.budget;
  int steps = 0;
  TrainEvents events = listening();
  events.on_step = [&](const StepRecord&, std::int64_t, double) { ++steps; };
  events.stop_asked = [&] { return steps >= 2; };
  testing::train_alone(stopped, events);
  // Other times: what was decided once does not depend on them.
  std::filesystem::remove_all(folder_ / "cache");
  stopped.resume = "auto";
  const TrainResult last = testing::train_alone(stopped, listening());
  EXPECT_EQ(last.parts, expected.parts);
  EXPECT_EQ(losses_of(last), losses_of(expected));
  EXPECT_EQ(io::read_text_file(folder_ / "stopped/model.safetensors"),
            io::read_text_file(folder_ / "once/model.safetensors"));
}

// The first of two texts has no token that is scored.
class HalfScored : public data::Batches {
 public:
  explicit HalfScored(std::shared_ptr<const models::Model> like) : like_(std::move(like)) {}

  std::int64_t per_epoch() const override { return 1000; }
  data::Batch make(std::int64_t number) const override {
    data::Batch batch = like_->example(2, static_cast<std::uint64_t>(number));
    batch.target.select(0, 0).fill_(-100);
    return batch;
  }

 private:
  const std::shared_ptr<const models::Model> like_;
};

TEST_F(BatchInParts, APartWithoutScoredTokensCountsForNothing) {
  const auto outcome = [](std::int64_t samples) {
    const std::shared_ptr<models::Model> model = models::make_model(
        "roberta_base", {.depths = {2}, .width = 48, .length = 24, .vocabulary = 101});
    const auto group = distributed::make_process_group({});
    distributed::Shares shares(models::trained_parameters(*model), *group);
    optim::AdamW optimizer(shares.own());
    distributed::GradientBuckets buckets(*model, shares);
    data::Prefetcher batches(std::make_shared<HalfScored>(model), {.workers = 0});
    BatchFeed feed(batches, *model, samples);
    return run_step({*model, optimizer, nullptr, buckets, shares}, {.batch = 2}, feed, 1e-4, false);
  };
  const StepOutcome whole = outcome(2), parts = outcome(1);
  EXPECT_EQ(parts.not_finite, "");
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5);
  EXPECT_NEAR(parts.gradient_norm / whole.gradient_norm, 1.0, 1e-4);
}

TEST_F(BatchInParts, AnotherBudgetIsPlannedAnew) {
  TrainConfig run = config("run");
  run.budget = small_budget(run);
  run.steps = 3;
  ASSERT_GT(testing::train_alone(run).parts, 1);
  run.steps = 6;
  run.budget = "4GiB";
  run.resume = "auto";
  EXPECT_EQ(testing::train_alone(run, listening()).parts, 1) << said_;
}

TEST_F(BatchInParts, TakesWhatIsAllowedAndGoesOnWithIt) {
  TrainConfig run = config("run");
  run.clip = 0.0;
  run.budget = small_budget(run, /*parts=*/false);
  const std::string refused = message_of<std::invalid_argument>([&] { testing::train_alone(run); });
  EXPECT_NE(refused.find("(--allow "), std::string::npos) << refused;
  EXPECT_NE(refused.find("mostly "), std::string::npos) << refused;
  run.allow = "lean-state,update-inside";
  run.steps = 3;
  const TrainResult first = testing::train_alone(run, listening());
  EXPECT_NE(said_.find("the plan takes --"), std::string::npos) << said_;
  EXPECT_LE(first.memory.total_peak, first.budget_bytes);
  TrainConfig begun;
  apply_json(begun, io::read_text_file(folder_ / "run/config.json"), "config.json");
  EXPECT_TRUE(begun.update == "inside" || begun.optimizer_state != "fp32");
  begun.steps = 6;
  begun.resume = "auto";
  EXPECT_EQ(testing::train_alone(begun, listening()).step, 6) << said_;
}

TEST_F(BatchInParts, NothingIsTakenThatDoesNotHelp) {
  TrainConfig run = config("run");
  run.allow = "lean-state,update-inside";
  run.steps = 1;
  testing::train_alone(run, listening());
  EXPECT_EQ(said_.find("the plan takes"), std::string::npos) << said_;
  TrainConfig begun;
  apply_json(begun, io::read_text_file(folder_ / "run/config.json"), "config.json");
  EXPECT_EQ(begun.optimizer_state, "fp32");
  EXPECT_EQ(begun.update, "after");
}

TEST_F(BatchInParts, BadAllowancesAreNamed) {
  const auto refused = [&](const char* allow, const auto& change) {
    TrainConfig bad = config("bad");
    bad.allow = allow;
    change(bad);
    return message_of<FieldError>([&] { check(bad); });
  };
  const auto nothing = [](TrainConfig&) {};
  EXPECT_EQ(refused("lean", nothing),
            "allow: expected lean-state, update-inside, or both separated by a comma, got 'lean'");
  EXPECT_EQ(refused("lean-state, update-inside", nothing).find("allow: expected lean-state"), 0U);
  EXPECT_EQ(refused("update-inside", [](TrainConfig& c) { c.accumulate = 2; }),
            "allow: expected no update-inside, because --accumulate is 2");
  EXPECT_EQ(refused("lean-state", [](TrainConfig& c) { c.mode = "reprop"; }),
            "allow: expected none, because --mode is reprop: only --mode auto searches");
}

}  // namespace
}  // namespace pareprop::train
