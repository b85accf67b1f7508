#include "pareprop/plan/dry_step.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "pareprop/lanes/serial_lane.h"
#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/plan/metered_lane.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::plan {
namespace {

struct Case {
  const char* model;
  models::Overrides overrides;
  std::int64_t batch;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"vit_cifar", {.depths = {3}}, 3},
      {"swin_cifar", {.depths = {2, 3}}, 2},
      {"mvit_cifar", {}, 2},
      {"roberta_base", {.depths = {2}, .width = 96, .length = 40}, 2},
      {"roberta_base", {.depths = {2}, .width = 96, .length = 600}, 1},  // attention by tiles
      {"vit_cifar", {.depths = {3}, .ending = models::Ending::sum_minus_x}, 3},
      {"vit_cifar", {.depths = {3}, .ending = models::Ending::sum_minus_x, .class_token = true}, 3},
      {"swin_cifar", {.depths = {2, 3}, .ending = models::Ending::sum_minus_x}, 2},
      {"roberta_base",
       {.depths = {2}, .width = 96, .length = 40, .ending = models::Ending::sum_minus_x},
       2},
  };
  return all;
}

// In order, with the threads that each of two lanes would have.
class TwoLanesInOrder final : public Executor {
 public:
  int lanes() const override { return 2; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer) override {
    const IntraOpThreads share(std::max(1, at::get_num_threads() / graph.lanes()));
    SerialLane().run(graph, body, observer);
  }
};

// Peaks of a real step, the batch not counted as it is made before.
memory::Usage real_step(const Case& c, const StepShape& shape, const StepPlan& plan) {
  memory::install_caching_allocator();
  const memory::Usage before = memory::usage();
  const auto model =
      models::make_model(c.model, c.overrides, {.dtype = stream_dtype(shape.precision), .seed = 1});
  model->train();
  model->set_executor(std::make_shared<TwoLanesInOrder>());
  model->set_options({.precision = shape.precision, .arithmetic = shape.arithmetic});
  model->set_plan(plan);
  const models::Batch batch = model->example(c.batch, 0);
  for (int step = 0; step < 2; ++step) {
    memory::reset_peaks();
    model->loss(batch, {.pass = std::make_shared<Pass>(0, 0)}).backward();
    if (step == 0) {
      for (auto& weight : model->parameters()) weight.mutable_grad().reset();
    }
  }
  memory::Usage usage = memory::usage();
  usage.total_peak -= before.total_live;
  usage.activation_peak -= before.activation_live;
  return usage;
}

class DryStepTest : public ::testing::TestWithParam<std::tuple<int, Precision>> {};

TEST_P(DryStepTest, TakesWhatARealStepTakes) {
  const Case& c = cases()[static_cast<std::size_t>(std::get<0>(GetParam()))];
  const Precision precision = std::get<1>(GetParam());
  const StepShape shape{
      .batch = c.batch,
      .precision = precision,
      .arithmetic = precision == Precision::bf16 ? Arithmetic::exact : Arithmetic::floating,
      .optimizer_state = {}};
  DryStep dry(
      [&] {
        return models::make_model(c.model, c.overrides,
                                  {.dtype = stream_dtype(precision), .device = at::kMeta});
      },
      shape);
  std::vector<std::pair<std::string, StepPlan>> plans;
  for (const Mode mode : preset_modes())
    plans.emplace_back(name(mode), dry.network().plan_of(mode));
  plans.emplace_back("products",
                     uniform_plan(Policy::products, /*overlap=*/false, dry.network().depths()));
  for (const auto& [kind, plan] : plans) {
    const memory::Usage predicted = dry.run(plan);
    const auto real = real_step(c, shape, plan);
    const double ratio =
        static_cast<double>(predicted.activation_peak) / static_cast<double>(real.activation_peak);
    const std::string words =
        std::string(c.model) + " " + std::string(name(precision)) + " " + kind;
    // The real step has one lane, and so no meetings: totals may be predicted higher.
    EXPECT_GE(ratio, 0.98) << words;
    EXPECT_LE(ratio, plan.overlaps() ? 1.25 : 1.02) << words;
    for (const memory::Tag tag : {memory::Tag::tape, memory::Tag::streams}) {
      const auto bytes = static_cast<double>(real.peak_of(tag));
      EXPECT_NEAR(static_cast<double>(predicted.peak_of(tag)), bytes, 0.02 * bytes) << words;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryFamily, DryStepTest,
                         ::testing::Combine(::testing::Range(0, 9),
                                            ::testing::Values(Precision::fp32, Precision::bf16,
                                                              Precision::fp64)));

// Images of 1024 x 1024 pixels and texts of 8192 tokens: a score for each pair of tokens of one
// head alone would be 64 and 256 MiB.
TEST(DryStep, LongInputsTakeActivationsThatGrowWithTheirTokens) {
  const Case image{
      "vit_cifar", {.depths = {1}, .width = 32, .heads = {1}, .patch = 16, .image_size = 1024}, 1};
  const Case text{"roberta_base",
                  {.depths = {1}, .width = 32, .heads = {1}, .length = 8192, .vocabulary = 300},
                  1};
  Case short_image = image, short_text = text;
  short_image.overrides.image_size = 512;  // a quarter of the tokens
  short_text.overrides.length = 2048;
  for (const auto& [whole, part] : {std::pair(image, short_image), std::pair(text, short_text)}) {
    for (const Mode mode : {Mode::reprop, Mode::pareprop}) {
      const auto peak = [mode = mode](const Case& c) {
        const StepPlan plan =
            models::make_model(c.model, c.overrides, {.device = at::kMeta})->plan_of(mode);
        return static_cast<double>(real_step(c, {.batch = 1}, plan).activation_peak);
      };
      EXPECT_LE(peak(whole), 4.4 * peak(part)) << whole.model << " " << name(mode);
    }
  }
}

// Their maps are parts of one tensor, which convolutions lay out anew.
TEST(DryStep, OfOneImageCountsTheMapsOfConvolutions) {
  const Case c{"mvit_cifar", {}, 1};
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    const StepShape shape{.batch = 1, .precision = precision, .optimizer_state = {}};
    DryStep dry([&] { return models::make_model(c.model, {}, {.device = at::kMeta}); }, shape);
    for (const Mode mode : {Mode::stored, Mode::checkpoint, Mode::reprop}) {
      const StepPlan plan = dry.network().plan_of(mode);
      const auto real = static_cast<double>(real_step(c, shape, plan).total_peak);
      EXPECT_NEAR(static_cast<double>(dry.run(plan).total_peak), real, 0.002 * real)
          << name(mode) << " " << name(precision);
    }
  }
}

TEST(DryStep, CountsOptimizerAndWhatItIsTold) {
  const auto make = [] { return models::make_model("vit_cifar", {}, {.device = at::kMeta}); };
  const StepPlan plan = make()->plan_of(Mode::reprop);
  // One at a time: each counts all that is made while it lives.
  const auto peak = [&](const StepShape& shape) {
    return DryStep(make, shape).run(plan).total_peak;
  };
  const std::int64_t weights = make()->parameter_count() * 4;
  const std::int64_t without = peak({.batch = 2, .optimizer_state = {}});
  EXPECT_EQ(peak({.batch = 2, .sample_bytes = 500}), peak({.batch = 2, .other_bytes = 1000}));
  EXPECT_EQ(peak({.batch = 2, .optimizer_state = copies_of_weights(3), .other_bytes = 1000}),
            without + 3 * weights + 1000);
  // Gradients are there from the start when micro-steps are added up.
  const std::int64_t added = peak({.batch = 2, .optimizer_state = {}, .accumulates = true});
  EXPECT_GT(added, without);
  EXPECT_LE(added, without + 2 * weights);
}

TEST(DryStep, ReversibleModesAreNotFatterThanCheckpointing) {
  for (const std::string& model : models::model_names()) {
    for (const Precision precision : {Precision::bf16, Precision::fp32}) {
      DryStep dry([&] { return models::make_model(model, {}, {.device = at::kMeta}); },
                  {.batch = 8, .precision = precision, .optimizer_state = {}});
      const auto activations = [&](Mode mode) {
        return static_cast<double>(dry.run(dry.network().plan_of(mode)).activation_peak);
      };
      const double checkpoint = activations(Mode::checkpoint);
      EXPECT_LE(activations(Mode::reprop), checkpoint) << model << " " << name(precision);
      EXPECT_LE(activations(Mode::pareprop), 1.3 * checkpoint) << model << " " << name(precision);
      if (model == "mvit_base" && precision == Precision::bf16) {
        EXPECT_LE(activations(Mode::reprop), 215.0 * (1 << 20));
        EXPECT_LE(activations(Mode::pareprop), 260.0 * (1 << 20));
      }
    }
  }
}

// Weights' gradients are highest where activations are not: meetings of lanes must be looked for
// among what counts.
TEST(DryStep, MeetingsOfLanesAreThoseOfActivationsWhenOnlyTheyCount) {
  const models::Overrides overrides{.depths = {2, 2, 2, 2}, .width = 48, .image_size = 112};
  const auto make = [&] {
    return models::make_model("swin_tiny", overrides, {.device = at::kMeta});
  };
  StepPlan plan = make()->plan_of(Mode::pareprop);
  plan.recompute_between = true;
  DryStep dry(make, {.batch = 2, .accumulates = true, .only_activations = true});
  const std::int64_t predicted = dry.run(plan).activation_peak;

  const auto model = make();
  const auto lane =
      std::make_shared<MeteredLane>(LanesMeant{.count = 2}, /*only_activations=*/true);
  model->train();
  model->set_executor(lane);
  model->set_plan(plan);
  const std::int64_t before = memory::usage(memory::Counted::meta).activation_live;
  const auto step = [&](const std::shared_ptr<GradientTaker>& adding) {
    model->loss(model->example(2, 0), {.pass = std::make_shared<Pass>(0, 0, nullptr, adding)})
        .backward();
  };
  lane->begin();
  step(nullptr);
  step(std::make_shared<AddedGradients>(*model));
  std::int64_t worst = 0;
  for (const MeteredRun& run : lane->runs()) worst = std::max(worst, run.worst_meeting());
  EXPECT_GE(predicted, worst - before);
}

TEST(DryStep, CountsOnlyActivationsWhenAsked) {
  const auto make = [] {
    return models::make_model("vit_cifar", {.depths = {3}}, {.device = at::kMeta});
  };
  const StepPlan plan = make()->plan_of(Mode::reprop);
  DryStep all(make, {.batch = 2}), activations(make, {.batch = 2, .only_activations = true});
  const std::int64_t peak = all.run(plan).activation_peak;
  EXPECT_LT(peak, all.run(plan).total_peak);
  EXPECT_EQ(activations.run(plan).total_peak, peak);
  // Below the topmost block, gradients grow and nothing else.
  const std::vector<std::int64_t> with = all.profile(false).stacks.front().live;
  const std::vector<std::int64_t> without = activations.profile(false).stacks.front().live;
  EXPECT_GT(with[0], with[1]);
  EXPECT_EQ(without[0], without[1]);
}

// The first of several parts makes gradients where the others add to them.
TEST(DryStep, ActivationsOfABatchInPartsAreThoseOfAnyOfThem) {
  memory::install_caching_allocator();
  const models::Overrides sizes{.depths = {2}, .width = 256};
  const auto model = models::make_model("vit_cifar", sizes, {.seed = 1});
  model->train();
  model->set_executor(std::make_shared<SerialLane>());
  model->set_mode(Mode::stored);
  const models::Batch part = model->example(1, 0);
  const std::int64_t before = memory::usage().activation_live;
  memory::reset_peaks();
  std::shared_ptr<GradientTaker> adding;
  std::int64_t peaks[2];
  for (std::int64_t& peak : peaks) {
    memory::reset_peaks();
    model->loss(part, {.pass = std::make_shared<Pass>(0, 0, nullptr, adding)}).backward();
    peak = memory::usage().activation_peak - before;
    adding = std::make_shared<AddedGradients>(*model);
  }
  const std::int64_t weight = 4 * 256 * 256 * 4;
  EXPECT_LE(peaks[1], peaks[0] - weight / 2) << "a gradient is made before it is added";
  DryStep dry([&] { return models::make_model("vit_cifar", sizes, {.device = at::kMeta}); },
              {.batch = 1, .accumulates = true, .only_activations = true});
  const auto predicted = static_cast<double>(dry.run(model->plan()).activation_peak);
  EXPECT_NEAR(predicted, static_cast<double>(peaks[0]), 0.02 * static_cast<double>(peaks[0]));
}

TEST(DryStep, ANetworkThatIsNotOnTheMetaDeviceIsRefused) {
  EXPECT_THROW(DryStep([] { return models::make_model("vit_cifar"); }, {}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::plan
