#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <thread>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/plan/joint_search.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/torch_lanes.h"
#include "tests/random_cases.h"

namespace pareprop::plan {
namespace {

// How far above what is measured plans with overlap may be. Under AddressSanitizer the lanes of one
// of them did not meet in 400 steps of one run (6.9 % above), and nearly did in another (4.9 %).
#ifdef __SANITIZE_ADDRESS__
constexpr double kMostOverlapped = 1.10;
#else
constexpr double kMostOverlapped = 1.05;
#endif

struct RandomCase {
  std::string model;
  models::Overrides overrides;
  StepShape shape;

  std::string words() const {
    return (overrides.plain ? "plain " : "") + model +
           (overrides.ending ? " " + std::string(name(*overrides.ending)) : "") +
           (overrides.class_token ? " class token" : "") +
           (overrides.encoder ? " " + std::string(name(*overrides.encoder)) : "") + ", batch " +
           std::to_string(shape.batch) + ", " + std::string(name(shape.precision)) +
           (shape.arithmetic == Arithmetic::exact ? " exact" : "");
  }
};

// Lanes that are held now and then before a task, for up to twice as long as tasks take, so that
// they meet in other ways from step to step: some steps stand for the many of a run, in which
// sooner or later all meet that may.
class UnevenLanes final : public Executor {
 public:
  int lanes() const override { return lanes_->lanes(); }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer) override {
    ++runs_;
    lanes_->run(
        graph,
        [&](const Task& task) {
          const auto number = static_cast<std::uint64_t>(&task - graph.tasks().data());
          const std::chrono::nanoseconds taken(nanoseconds_ / std::max<std::int64_t>(1, tasks_));
          std::this_thread::sleep_for(taken * (random_key({runs_, number}) % 8) / 4);
          const auto begin = std::chrono::steady_clock::now();
          body(task);
          nanoseconds_ += (std::chrono::steady_clock::now() - begin).count();
          ++tasks_;
        },
        observer);
  }

 private:
  std::shared_ptr<Executor> lanes_ = make_executor(at::kCPU, 2);
  std::uint64_t runs_ = 0;
  std::atomic<std::int64_t> nanoseconds_ = 0, tasks_ = 0;  // what tasks take in the mean
};

class RandomBudgets : public ::testing::Test {
 protected:
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(random_);
  }

  RandomCase draw(bool plain) {
    RandomCase c;
    c.overrides.dropout = below(2) == 0 ? 0.0 : 0.1;
    c.overrides.plain = plain;
    const auto blocks = [&] { return static_cast<int>(1 + below(6)); };
    switch (below(4)) {
      case 0:
        c.model = "vit_cifar";
        c.overrides.depths = {blocks()};
        c.overrides.width = 32 * (1 + below(5));
        break;
      case 1:
        c.model = "swin_cifar";
        c.overrides.depths = {blocks(), blocks()};
        break;
      case 2:
        c.model = "mvit_cifar";
        break;
      default:
        c.model = "roberta_base";
        c.overrides.depths = {blocks()};
        c.overrides.width = 48 * (1 + below(4));
        c.overrides.length = 16 + below(100);
        c.overrides.vocabulary = 500 + below(3000);
    }
    change_kind(c);
    c.shape.batch = 1 + below(12);
    c.shape.precision = below(2) == 0 ? Precision::fp32 : Precision::bf16;
    if (below(2) == 0) c.shape.arithmetic = Arithmetic::exact;
    c.shape.optimizer_state = {};
    return c;
  }

  // Half of the networks get another ending of their streams, or norms behind their sums.
  void change_kind(RandomCase& c) {
    const auto draw = [&](unsigned n) { return static_cast<unsigned>(random_kinds_() % n); };
    if (c.model == "mvit_cifar" || draw(2) == 0) return;
    if (c.overrides.plain) {
      if (c.model == "roberta_base") c.overrides.encoder = models::Encoder::roberta;
      return;
    }
    constexpr models::Ending kEndings[] = {models::Ending::sum, models::Ending::mean,
                                           models::Ending::y2, models::Ending::sum_minus_x};
    c.overrides.ending = kEndings[draw(4)];
    c.overrides.class_token = c.model == "vit_cifar" && draw(2) == 0;
  }

  // The peak of real steps, on real lanes. Where lanes overlap, which temporaries meet is chance:
  // 40 steps, and more of them while the peak is lower than `expected`.
  std::int64_t measured(const RandomCase& c, const StepPlan& plan, std::int64_t expected,
                        std::int64_t parts = 1) {
    const std::int64_t before = memory::usage().total_live;
    const auto model = models::make_model(c.model, c.overrides, {.seed = 3});
    model->train();
    model->set_executor(std::make_shared<UnevenLanes>());
    model->set_options({.precision = c.shape.precision, .arithmetic = c.shape.arithmetic});
    model->set_plan(plan);
    // Each part has its share of masked tokens, as in training.
    const std::int64_t samples = c.shape.batch / parts;
    std::vector<models::Batch> batches;
    for (std::int64_t part = 0; part < parts; ++part) {
      batches.push_back(model->example(samples, static_cast<std::uint64_t>(part)));
    }
    memory::reset_peaks();
    const bool overlap = plan.overlaps();
    const std::uint64_t least = overlap ? 40 : 2, most = overlap ? 80 : 2;
    std::int64_t peak = 0;
    for (std::uint64_t step = 0; step < most && (step < least || peak < expected); ++step) {
      std::shared_ptr<GradientTaker> adding;
      for (std::int64_t part = 0; part < parts; ++part) {
        const auto pass =
            std::make_shared<Pass>(0, step, nullptr, adding, 1, BatchPart{part * samples, samples});
        model->loss(batches[static_cast<std::size_t>(part)], {.pass = pass}).backward();
        adding = std::make_shared<AddedGradients>(*model);
      }
      for (auto& weight : model->parameters()) weight.mutable_grad().reset();
      peak = memory::usage().total_peak - before;
    }
    return peak;
  }

  void expect_budgets_kept(bool plain, int count);

  std::mt19937_64 random_, random_kinds_;
};

void RandomBudgets::expect_budgets_kept(bool plain, int count) {
  memory::install_caching_allocator();
  random_.seed(pareprop::testing::case_seed(20261116));
  random_kinds_.seed(pareprop::testing::case_seed(20261119));
  count = pareprop::testing::case_count(count);
  double over = 0.0, over_lanes = 0.0, under = 0.0;
  int overlapped = 0;
  for (int i = 0; i < count; ++i) {
    const RandomCase c = draw(plain);
    Plan plan;
    {
      Planner planner(
          [&] { return models::make_model(c.model, c.overrides, {.device = at::kMeta}); }, c.shape);
      // Times by chance, so that plans overlap now and then.
      StepTimes times{.stacks = {}, .rest = 1.0};
      for (std::size_t s = planner.all(Mode::stored).stacks.size(); s > 0; --s) {
        times.stacks.push_back({1.0, 2.0, 2.0 + static_cast<double>(below(3))});
      }
      planner.use(times);
      const std::int64_t least = planner.plan_step(0).smallest_budget;
      const std::int64_t stored = planner.predict(planner.all(Mode::stored)).total_peak;
      plan = planner.plan_step(least + (std::max(stored, least) - least) * below(12) / 10);
    }
    const std::string words = c.words() + ", " + std::string(name(nearest_mode(plan.step))) + " " +
                              policy_letters(plan.step);
    ASSERT_TRUE(plan.fits) << words;
    const double expected = static_cast<double>(plan.predicted.total_peak) / 1.05;
    const std::int64_t peak = measured(c, plan.step, std::llround(expected + 0.5));
    const double ratio = static_cast<double>(plan.predicted.total_peak) / static_cast<double>(peak);
    const bool overlap = plan.step.overlaps();
    EXPECT_LE(ratio, overlap ? kMostOverlapped : 1.05) << words;
    EXPECT_GE(ratio, 0.98) << words;
    EXPECT_LE(peak, plan.budget) << words << ", predicted " << plan.predicted.total_peak;
    double& above = overlap ? over_lanes : over;
    above = std::max(above, ratio - 1.0);
    under = std::max(under, 1.0 - ratio);
    if (overlap) ++overlapped;
  }
  std::cout << "predicted at most " << 100.0 * over << " % above (with lanes " << 100.0 * over_lanes
            << " %) and " << 100.0 * under << " % below what was measured; " << overlapped
            << " plans overlapped\n";
  EXPECT_GT(overlapped, 0);
}

TEST_F(RandomBudgets, PredictedPeaksAreMeasuredAndBudgetsKept) { expect_budgets_kept(false, 20); }

TEST_F(RandomBudgets, ThoseOfPlainNetworksAreKept) { expect_budgets_kept(true, 10); }

// Parts, plans and an optimizer's state together, in random totals.
TEST_F(RandomBudgets, TotalsAreKeptInPartsToo) {
  memory::install_caching_allocator();
  random_.seed(pareprop::testing::case_seed(20261118));
  double over = 0.0, under = 0.0;
  int in_parts = 0;
  const int count = pareprop::testing::case_count(5);
  for (int i = 0; i < count; ++i) {
    RandomCase c = draw(/*plain=*/i % 3 == 0);
    c.shape.input_bytes = [&] {
      const models::Batch one = models::make_model(c.model, c.overrides)->example(1, 0);
      return static_cast<std::int64_t>(one.input.nbytes() + one.target.nbytes());
    }();
    JointPlan plan;
    {
      JointSearch search(
          [&] { return models::make_model(c.model, c.overrides, {.device = at::kMeta}); }, c.shape);
      SizeTimes times;
      for (const std::int64_t parts : part_counts(c.shape.batch)) {
        StepTimes own{.stacks = {}, .rest = 1.0};
        for (std::size_t s = search.planner().all(Mode::stored).stacks.size(); s > 0; --s) {
          own.stacks.push_back({1.0, 2.0, 2.0 + static_cast<double>(below(3))});
        }
        const double fair = 1.0 / static_cast<double>(parts);
        times[{.samples = c.shape.batch / parts, .adds = parts > 1}] =
            scaled(own, fair * (1.0 + 0.1 * static_cast<double>(below(3))));
      }
      search.use(times);
      JointPlan leanest = search.best(0);
      search.add_figures(leanest);
      const std::int64_t least = leanest.micro.smallest_budget;
      const std::int64_t stored = search.in_mode(Mode::stored, 0).micro.predicted.total_peak;
      plan = search.best(least + (std::max(stored, least) - least) * below(12) / 10);
    }
    const std::string words = c.words() + ", " + std::to_string(plan.parts) + " parts, " +
                              std::string(name(nearest_mode(plan.micro.step))) + " " +
                              policy_letters(plan.micro.step);
    ASSERT_TRUE(plan.micro.fits) << words;
    const auto predicted = static_cast<double>(plan.micro.predicted.total_peak);
    const std::int64_t peak =
        measured(c, plan.micro.step, std::llround(predicted / 1.05 + 0.5), plan.parts);
    const double ratio = predicted / static_cast<double>(peak);
    EXPECT_LE(ratio, plan.micro.step.overlaps() ? kMostOverlapped : 1.05) << words;
    EXPECT_GE(ratio, 0.98) << words;
    EXPECT_LE(peak, plan.micro.budget) << words << ", predicted " << predicted;
    over = std::max(over, ratio - 1.0);
    under = std::max(under, 1.0 - ratio);
    in_parts += plan.parts > 1;
  }
  std::cout << "predicted at most " << 100.0 * over << " % above and " << 100.0 * under
            << " % below what was measured; " << in_parts << " plans were in parts\n";
  EXPECT_GT(3 * in_parts, count);
}

}  // namespace
}  // namespace pareprop::plan
