#include "pareprop/models/vit.h"

#include <gtest/gtest.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"

namespace pareprop::models {
namespace {

// Parameters in millions and forward GMACs of the reversible sizes, as published for the
// architecture.
TEST(ViT, SizesHaveTheirPublishedParametersAndMacs) {
  const struct {
    const char* name;
    double parameters, unit, gmacs;
    std::int64_t tokens;
  } sizes[] = {{"vit_tiny", 5.91, 0.01, 1.25, 196},      {"vit_small", 22.43, 0.01, 4.57, 196},
               {"vit_base", 87.34, 0.01, 17.47, 196},    {"vit_large", 305.35, 0.01, 61.23, 196},
               {"vit_huge", 633.33, 0.01, 166.6, 256},   {"vit_giant", 1014.0, 0.1, 266.0, 256},
               {"vit_gigantic", 1846.1, 0.1, 481.8, 256}};
  for (const auto& size : sizes) {
    const ModelSummary summary = summarise(size.name);
    EXPECT_NEAR(double(summary.parameters) / 1e6, size.parameters, 0.51 * size.unit) << size.name;
    EXPECT_NEAR(summary.gmacs, size.gmacs, 0.01 * size.gmacs) << size.name;
    EXPECT_EQ(summary.tokens, size.tokens);
  }
}

TEST(ViT, SummariesAllocateNoWeights) {
  memory::install_caching_allocator();
  const auto before = memory::pool_usage();
  summarise("vit_gigantic");
  const auto after = memory::pool_usage();
  EXPECT_LT(after.mapped - before.mapped, 16 << 20);
}

TEST(ViT, WeightsDependOnTheSeedOnly) {
  const auto a = make_model("vit_digits", {}, {.seed = 3})->parameters();
  at::randn({5});
  const auto b = make_model("vit_digits", {}, {.seed = 3})->parameters();
  const auto c = make_model("vit_digits", {}, {.seed = 4})->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i]));
  EXPECT_FALSE(a[0].equal(c[0]));
  EXPECT_NEAR(a[0].std().item<double>(), 0.0176, 0.002);  // of a normal cut off at two deviations
  EXPECT_LE(a[0].abs().max().item<double>(), 0.0401);
}

TEST(ViT, OverridesChangeTheNetwork) {
  const auto model =
      make_model("vit_tiny", {.depths = {3}, .width = 96, .image_size = 64, .classes = 7});
  EXPECT_EQ(model->stacks().front()->depth(), 3);
  EXPECT_EQ(model->tokens(), 16);
  EXPECT_EQ(model->named_parameters()["blocks.2.g.fc1.weight"].sizes(), (at::IntArrayRef{384, 96}));
  EXPECT_EQ(model->forward(model->example(2, 1)).sizes(), (at::IntArrayRef{2, 7}));
}

TEST(ViT, BadConfigurationsAreRefused) {
  EXPECT_THROW(make_model("vit_tiny", {.image_size = 100}), std::invalid_argument);
  EXPECT_THROW(make_model("vit_tiny", {.width = 100}), std::invalid_argument);
  EXPECT_THROW(make_model("vit_tiny", {.depths = {-1}}), std::invalid_argument);
  EXPECT_THROW(make_model("vit_tiny", {.classes = 0}), std::invalid_argument);
  EXPECT_THROW(make_model("vit_tiny", {.length = 128}), std::invalid_argument);
  EXPECT_THROW(make_model("vit_teeny"), std::invalid_argument);
  auto model = make_model("vit_digits");
  EXPECT_THROW(model->forward({.input = at::zeros({2, 1, 8, 9}), .target = {}}),
               std::invalid_argument);
  EXPECT_THROW(register_model("vit_tiny", nullptr), std::invalid_argument);
}

TEST(PlainViT, HasThePublishedParametersAndTrainsStoredOrCheckpointed) {
  const struct {
    const char* name;
    double parameters, unit, gmacs;
  } sizes[] = {{"vit_tiny", 5.72, 0.01, 1.25},      {"vit_small", 22.05, 0.01, 4.60},
               {"vit_base", 86.57, 0.01, 17.56},    {"vit_large", 304.33, 0.01, 61.55},
               {"vit_huge", 632.05, 0.01, 167.3},   {"vit_giant", 1012.6, 0.1, 267.0},
               {"vit_gigantic", 1844.4, 0.1, 483.8}};
  for (const auto& size : sizes) {
    const ModelSummary summary = summarise(size.name, {.plain = true});
    EXPECT_NEAR(double(summary.parameters) / 1e6, size.parameters, 0.51 * size.unit) << size.name;
    EXPECT_NEAR(summary.gmacs, size.gmacs, 0.01 * size.gmacs) << size.name;
    EXPECT_LT(summary.activation_bytes_reversible, 0.5 * summary.activation_bytes_stored);
  }
  auto model = make_model("vit_digits", {.dropout = 0.1, .drop_path = 0.2, .plain = true});
  std::vector<std::vector<at::Tensor>> gradients;
  for (Mode mode : {Mode::stored, Mode::checkpoint}) {
    model->set_mode(mode);
    model->loss(model->example(2, 1), {.pass = std::make_shared<Pass>(1, 2)}).backward();
    gradients.emplace_back();
    for (auto& p : model->parameters()) {
      gradients.back().push_back(p.grad().clone());
      p.mutable_grad().reset();
    }
  }
  EXPECT_LE(max_relative_error(gradients[0], gradients[1]), 1e-5);
  EXPECT_THROW(model->set_mode(Mode::reprop), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
