#include "pareprop/sweep/run_sweep.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::sweep {
namespace {

using io::testing::content;
using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;

Grid small() { return {.models = {"vit_digits"}, .depths = {{3}}, .batches = {2}}; }

Sweep sweep_of(Grid grid) { return {.rounds = 2, .steps = 1, .rows = {std::move(grid)}}; }

class RunSweep : public ::testing::Test {
 protected:
  void SetUp() override { memory::install_caching_allocator(); }

  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "results.jsonl";
};

TEST_F(RunSweep, EveryModeHasARowThatWasVerifiedAndTimed) {
  Grid grid = small();
  grid.precisions = {Precision::fp32, Precision::bf16};
  const auto result = run_sweep(sweep_of(grid), nullptr, {});
  ASSERT_EQ(result.rows.size(), 10U);
  EXPECT_TRUE(result.wrong.empty());
  for (const ResultRow& row : result.rows) {
    EXPECT_TRUE(row.timed());
    EXPECT_EQ(row.family, "vit");
    EXPECT_EQ(row.depth, 3);
    EXPECT_EQ(row.verified_batch, 2);
    EXPECT_EQ(row.timed_steps, 2);
    EXPECT_GT(row.step_ms_best, 0.0);
    EXPECT_LE(row.step_ms_best, row.step_ms_p10);
    EXPECT_LE(row.step_ms_p10, row.step_ms);
    EXPECT_LE(row.step_ms, row.step_ms_p90);
    EXPECT_GT(row.forward_ms, 0.0);
    EXPECT_GT(row.backward_ms, 0.0);
    EXPECT_LE(row.forward_ms + row.backward_ms, 2.0 * row.step_ms_p90);
    EXPECT_DOUBLE_EQ(row.samples_per_s, 2e3 / row.step_ms);
    EXPECT_GT(row.tokens, 0);
    EXPECT_GT(row.peak_bytes, row.activation_peak_bytes);
    EXPECT_GT(row.activation_peak_bytes, 0);
    EXPECT_GT(row.gradient_ms, 0.0);
    EXPECT_EQ(row.recover_ms > 0.0, row.mode != "stored" && row.mode != "auto") << row.mode;
    EXPECT_EQ(row.weight_gradient_ms > 0.0, row.mode == "pareprop") << row.mode;
    if (row.mode != "pareprop") {
      EXPECT_EQ(row.overlap_ms, 0.0) << row.mode;
    }
  }
  EXPECT_EQ(result.rows[0].mode, "stored");
  EXPECT_EQ(result.rows[9].precision, "bf16");
}

TEST_F(RunSweep, ABudgetIsKeptAndOneThatIsTooSmallDoesNotFit) {
  Grid grid = small();
  grid.depths = {{8}};
  grid.batches = {64};
  grid.modes = {Mode::stored, Mode::reprop};
  const auto free = run_sweep(sweep_of(grid), nullptr, {}).rows;
  const std::int64_t between = (free[0].peak_bytes + free[1].peak_bytes) / 2;
  grid.budgets = {between, 4096};
  const auto rows = run_sweep(sweep_of(grid), nullptr, {}).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2].mode, "auto");
  EXPECT_EQ(rows[2].budget_bytes, between);
  ASSERT_TRUE(rows[2].timed()) << rows[2].error;
  EXPECT_LE(rows[2].peak_bytes, between);
  EXPECT_GT(rows[2].activation_peak_bytes, rows[1].activation_peak_bytes);
  EXPECT_GT(rows[2].predicted_peak_bytes, 0);
  EXPECT_EQ(rows[3].budget_bytes, 4096);
  EXPECT_FALSE(rows[3].fits);
  EXPECT_EQ(rows[3].step_ms, 0.0);
}

TEST_F(RunSweep, GoesOnWhereItStopped) {
  Grid grid = small();
  grid.modes = {Mode::stored, Mode::reprop};
  std::string whole;
  {
    ResultsFile file(path_);
    EXPECT_EQ(run_sweep(sweep_of(grid), &file, {}).skipped, 0U);
    whole = content(path_);
  }
  grid.batches = {2, 3};
  {
    ResultsFile file(path_);
    std::vector<bool> was_there;
    SweepOptions options;
    options.on_case = [&](const Case&, const std::vector<ResultRow>&, bool there) {
      was_there.push_back(there);
    };
    const auto result = run_sweep(sweep_of(grid), &file, options);
    EXPECT_EQ(result.skipped, 1U);
    EXPECT_EQ(was_there, (std::vector<bool>{true, false}));
    EXPECT_EQ(result.rows.size(), 4U);
    EXPECT_EQ(to_json(result.rows[0]), to_json(file.rows()[0]));
  }
  EXPECT_EQ(content(path_).rfind(whole, 0), 0U);  // what was there is not touched
  // Stopped in the middle of a line of the second case, which is then run again, whole.
  const std::string two = content(path_);
  put(path_, two.substr(0, two.size() - 10));
  {
    ResultsFile file(path_);
    EXPECT_EQ(run_sweep(sweep_of(grid), &file, {}).skipped, 1U);
  }
  EXPECT_EQ(latest(read_results(path_).rows).size(), 4U);
  // One mode more: the modes of a case are compared, so they take turns again.
  grid.modes.push_back(Mode::pareprop);
  ResultsFile file(path_);
  EXPECT_EQ(run_sweep(sweep_of(grid), &file, {}).skipped, 0U);
}

TEST_F(RunSweep, WhatDoesNotFitIsARowAndTheSweepGoesOn) {
  Grid grid = small();
  grid.batches = {64, 1};
  grid.modes = {Mode::stored, Mode::reprop};
  const CaseShape shape = shape_of(cases_of(sweep_of(grid), 1)[0]);
  const double between = (shape.step_bytes(Mode::stored) + shape.step_bytes(Mode::reprop)) / 2.0;
  ResultsFile file(path_);
  const auto rows =
      run_sweep(sweep_of(grid), &file, {.memory = static_cast<std::int64_t>(between)}).rows;
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_FALSE(rows[0].fits);
  EXPECT_EQ(rows[0].step_ms, 0.0);
  EXPECT_TRUE(rows[1].timed());
  EXPECT_EQ(rows[1].verified_batch, 1);  // the reference of the whole batch does not fit either
  EXPECT_TRUE(rows[2].timed());
  EXPECT_EQ(rows[2].verified_batch, 1);
  const auto none = run_sweep(sweep_of(grid), nullptr, {.memory = 1000}).rows;
  for (const ResultRow& row : none) EXPECT_FALSE(row.fits);
}

// Two blocks whose lowest F is given.
class TinyNetwork : public models::Model {
 public:
  at::Tensor forward(const models::Batch& batch, const models::ForwardOptions& options) override {
    const CallOptions call{.pass = pass_for(options)};
    const at::Tensor& x = batch.input;
    const auto y = options.reference ? stack_->reference(x, x, call) : stack_->forward(x, x, call);
    return y.first.add(y.second);
  }
  models::Batch example(std::int64_t batch, std::uint64_t) const override {
    const at::TensorOptions options = weight_.options().requires_grad(false);
    return {.input = at::ones({batch, 4}, options),
            .target = at::zeros({batch}, options.dtype(at::kLong))};
  }
  std::int64_t tokens() const override { return 1; }

 protected:
  explicit TinyNetwork(const models::WeightOptions& weights, const BranchFunction& lowest) {
    weight_ = register_parameter(
        "weight", at::full({4}, 0.3, at::TensorOptions(weights.dtype).device(weights.device)));
    const Branch fine(
        [this](const at::Tensor& x, const BranchCall&) { return x.mul(weight_).tanh(); },
        {weight_});
    stack_ = add_stack(*this, "blocks", {{Branch(lowest, {weight_}), fine}, {fine, fine}});
  }

  at::Tensor weight_;
  Stack stack_{nullptr};
};

// Asks for more memory than any machine has in its third step that stores everything: after the
// reference, and the step that was compared with it.
class Greedy : public TinyNetwork {
 public:
  explicit Greedy(const models::WeightOptions& weights)
      : TinyNetwork(weights,
                    [this](const at::Tensor& x, const BranchCall&) { return x.mul(weight_); }) {}
  at::Tensor forward(const models::Batch& batch, const models::ForwardOptions& options) override {
    if (plan().stores_all() && !batch.input.is_meta() && ++steps_ > 2)
      at::zeros({std::int64_t{1} << 50});
    return TinyNetwork::forward(batch, options);
  }

 private:
  int steps_ = 0;
};

// Its F computes something else each time.
class Forgetful : public TinyNetwork {
 public:
  explicit Forgetful(const models::WeightOptions& weights)
      : TinyNetwork(weights, [this](const at::Tensor& x, const BranchCall&) {
          return x.mul(weight_).mul(++calls_);
        }) {}

 private:
  int calls_ = 0;
};

template <typename Network>
void register_network(const std::string& name) {
  models::register_model(name, [](const models::Overrides&, const models::WeightOptions& weights) {
    return std::make_shared<Network>(weights);
  });
}

TEST_F(RunSweep, WhoRunsOutOfMemoryIsOutAndTheOthersAreTimed) {
  models::register_model("greedy",
                         [](const models::Overrides&, const models::WeightOptions& weights) {
                           return std::make_shared<Greedy>(weights);
                         });
  const auto rows =
      run_sweep(sweep_of({.models = {"greedy"}, .modes = {Mode::stored, Mode::reprop}}), nullptr,
                {})
          .rows;
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_FALSE(rows[0].fits);
  EXPECT_TRUE(rows[1].timed());
}

TEST_F(RunSweep, WrongGradientsAreReportedNotTimedAndTriedAgain) {
  models::register_model("forgetful",
                         [](const models::Overrides&, const models::WeightOptions& weights) {
                           return std::make_shared<Forgetful>(weights);
                         });
  const Sweep sweep = sweep_of({.models = {"forgetful"}, .modes = {Mode::stored, Mode::reprop}});
  ResultsFile file(path_);
  const auto result = run_sweep(sweep, &file, {});
  ASSERT_EQ(result.rows.size(), 2U);
  ASSERT_EQ(result.wrong.size(), 1U);
  for (const ResultRow& row : result.rows) {
    EXPECT_FALSE(row.timed());
    EXPECT_EQ(row.step_ms, 0.0);
    EXPECT_NE(row.error.find("gradients are wrong"), std::string::npos) << row.error;
  }
  EXPECT_EQ(run_sweep(sweep, &file, {}).skipped, 0U);
}

TEST_F(RunSweep, BadCasesAreRefusedBeforeAnythingIsRun) {
  ResultsFile file(path_);
  Grid grid = small();
  grid.models = {"vit_digits", "vit_huger"};
  EXPECT_NE(message_of<std::invalid_argument>([&] {
              run_sweep(sweep_of(grid), &file, {});
            }).find("vit_huger"),
            std::string::npos);
  EXPECT_TRUE(file.rows().empty());
}

TEST_F(RunSweep, ThreadsAreThoseOfTheCaseAndRestored) {
  const int before = at::get_num_threads();
  Grid grid = small();
  grid.threads = {1, 2};
  grid.modes = {Mode::stored};
  int seen = 0;
  SweepOptions options;
  options.on_progress = [&](const SweepProgress& now) {
    EXPECT_EQ(now.cases, 2U);
    EXPECT_EQ(at::get_num_threads(), static_cast<int>(now.number));
    if (now.number == 2) {
      EXPECT_GE(now.seconds_left, 0.0);
    }
    ++seen;
  };
  const auto rows = run_sweep(sweep_of(grid), nullptr, options).rows;
  EXPECT_EQ(rows[0].threads, 1);
  EXPECT_EQ(rows[1].threads, 2);
  EXPECT_EQ(at::get_num_threads(), before);
  EXPECT_GE(seen, 8);
}

}  // namespace
}  // namespace pareprop::sweep
