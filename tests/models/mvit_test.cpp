#include "pareprop/models/mvit.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/cost.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"

namespace pareprop::models {
namespace {

struct Published {
  double parameters, unit;  // millions, and the last digit that is given
  double gmacs;
};

// Parameters to the digit given; products within 1 %, or half of their last digit where that is
// more.
void expect_published(const ModelSummary& summary, const Published& published) {
  EXPECT_NEAR(double(summary.parameters) / 1e6, published.parameters, 0.51 * published.unit)
      << summary.name;
  EXPECT_NEAR(summary.gmacs, published.gmacs, std::max(0.051, 0.01 * published.gmacs))
      << summary.name;
}

TEST(MViT, SizesHaveTheirPublishedParametersAndMacs) {
  const struct {
    const char* name;
    Published published;
    std::vector<int> stacks;
  } sizes[] = {{"mvit_tiny", {28.8, 0.1, 6.4}, {1, 1, 4, 1}},
               {"mvit_small", {39.5, 0.1, 8.7}, {1, 1, 10, 1}},
               {"mvit_base", {56.1, 0.1, 11.8}, {2, 2, 15, 2}},
               {"mvit_large", {223.5, 0.1, 45.7}, {2, 5, 35, 3}},
               {"mvit_huge", {683.9, 0.1, 126.5}, {4, 7, 59, 7}},
               {"mvit_v1_base", {39.7, 0.1, 8.64}, {1, 1, 10, 1}}};
  for (const auto& size : sizes) {
    const ModelSummary summary = summarise(size.name);
    expect_published(summary, size.published);
    EXPECT_EQ(summary.tokens, 56 * 56);
    EXPECT_EQ(summary.stacks, size.stacks) << size.name;
  }
}

TEST(MViT, CifarHasTheParametersOfMinRev) {
  const ModelSummary summary = summarise("mvit_cifar");
  EXPECT_EQ(summary.parameters, 1261386);
  EXPECT_EQ(summary.tokens, 256);
  EXPECT_EQ(summary.stacks, (std::vector<int>{1, 1}));
}

TEST(MViT, WithoutFusionHasTheParametersAndMacsOfPlainConcatenation) {
  const struct {
    MViTConfig config;
    Published published;
  } sizes[] = {{mvit_config(96, 1, {1, 2, 5, 2}), {25.7, 0.1, 5.0}},
               {mvit_config(96, 1, {1, 2, 11, 2}), {36.4, 0.1, 7.3}},
               {mvit_config(96, 1, {2, 3, 16, 3}), {53.0, 0.1, 10.5}},
               {mvit_config(144, 2, {2, 6, 36, 4}), {216.5, 0.1, 42.5}},
               {mvit_config(192, 3, {4, 8, 60, 8}), {671.5, 0.1, 121.0}}};
  for (auto [config, published] : sizes) {
    config.junction = MViTJunction::concat;
    RevMViT model(config, {.device = at::kMeta});
    ModelSummary summary{.name = "concat", .stacks = {}};
    summary.parameters = model.parameter_count();
    summary.gmacs = cost_of(model).macs / 1e9;
    expect_published(summary, published);
  }
}

TEST(PlainMViT, HasThePublishedParametersAndMacs) {
  const struct {
    const char* name;
    Published published;
  } sizes[] = {{"mvit_tiny", {24.17, 0.01, 4.7}},
               {"mvit_small", {34.87, 0.01, 7.0}},
               {"mvit_base", {51.47, 0.01, 10.1}},
               {"mvit_large", {217.99, 0.01, 43.7}},
               {"mvit_huge", {667, 1, 119.6}}};
  for (const auto& size : sizes) {
    const ModelSummary summary = summarise(size.name, {.plain = true});
    expect_published(summary, size.published);
    EXPECT_LT(summary.activation_bytes_reversible, 0.5 * summary.activation_bytes_stored);
  }
}

TEST(MViT, OverridesChangeTheNetwork) {
  const auto model = make_model(
      "mvit_tiny",
      {.depths = {1, 3, 1, 2}, .width = 16, .image_size = 64, .channels = 1, .classes = 7});
  std::vector<int> depths;
  for (const Stack& stack : model->stacks()) depths.push_back(stack->depth());
  EXPECT_EQ(depths, (std::vector<int>{1, 2, 1}));  // stage 3 is its transition
  EXPECT_EQ(model->tokens(), 256);
  const auto parameters = model->named_parameters();
  EXPECT_EQ(parameters["patch_embed.weight"].sizes(), (at::IntArrayRef{16, 1, 7, 7}));
  EXPECT_EQ(parameters["stages.1.fusion.fc1.weight"].sizes(), (at::IntArrayRef{64, 32}));
  EXPECT_EQ(parameters["stages.1.transition.f.qkv.weight"].sizes(), (at::IntArrayRef{96, 32}));
  EXPECT_EQ(parameters["stages.1.blocks.1.f.pool_k.weight"].sizes(),
            (at::IntArrayRef{16, 1, 3, 3}));
  EXPECT_EQ(parameters["stages.1.blocks.1.f.rel_pos_h"].sizes(), (at::IntArrayRef{15, 16}));
  EXPECT_EQ(parameters["stages.3.blocks.0.g.fc1.weight"].sizes(), (at::IntArrayRef{512, 128}));
  EXPECT_EQ(parameters["head.weight"].sizes(), (at::IntArrayRef{7, 256}));
  EXPECT_TRUE(model->named_buffers().is_empty());
  EXPECT_EQ(model->forward(model->example(2, 1)).sizes(), (at::IntArrayRef{2, 7}));
}

TEST(MViT, AStageThatIsATransitionOnlyEndsWithOneStream) {
  const auto model = make_model("mvit_tiny", {.depths = {1}, .width = 8, .image_size = 32});
  EXPECT_EQ(model->stacks().size(), 1u);
  EXPECT_EQ(model->named_parameters()["head.weight"].size(1), 64);
  EXPECT_EQ(model->forward(model->example(1, 1)).sizes(), (at::IntArrayRef{1, 1000}));
}

TEST(MViT, MapsOfAnySizeWork) {
  for (std::int64_t size : {1, 30, 45, 57}) {
    for (const char* name : {"mvit_tiny", "mvit_v1_base"}) {
      for (bool plain : {false, true}) {
        const auto model = make_model(
            name, {.depths = {2}, .width = 8, .image_size = size, .classes = 3, .plain = plain});
        const std::int64_t side = (size + 3) / 4;
        EXPECT_EQ(model->tokens(), side * side);
        model->loss(model->example(2, 1)).backward();
        for (const auto& p : model->named_parameters()) {
          EXPECT_TRUE(p.value().grad().defined()) << p.key();
        }
      }
    }
  }
}

TEST(MViT, ANameOfTheStateIsAParameterAndWeightsDependOnTheSeedOnly) {
  const Overrides small{.width = 16, .image_size = 32};
  const auto a = make_model("mvit_tiny", small, {.seed = 3})->named_parameters();
  const auto b = make_model("mvit_tiny", small, {.seed = 3})->named_parameters();
  const auto c = make_model("mvit_tiny", small, {.seed = 4})->named_parameters();
  for (const auto& item : a) EXPECT_TRUE(item.value().equal(b[item.key()])) << item.key();
  const at::Tensor& pool = a["stages.2.blocks.0.f.pool_q.weight"];
  EXPECT_FALSE(pool.equal(c["stages.2.blocks.0.f.pool_q.weight"]));
  EXPECT_LE(pool.abs().max().item<double>(), 1.0 / 3);  // 9 inputs
  EXPECT_GT(pool.abs().max().item<double>(), 0.3);
}

TEST(MViT, BadConfigurationsAreRefused) {
  const auto refuses = [](const Overrides& overrides, const std::string& reason) {
    try {
      make_model("mvit_large", overrides, {.device = at::kMeta});
      ADD_FAILURE() << "expected: " << reason;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  refuses({.depths = {2, 2}}, "got 2 depths");
  refuses({.depths = {-1, 2, 2, 2}}, "depth of 0 or more");
  refuses({.depths = {0, 2, 0, 2}}, "depth of 1 or more in stage 3");
  refuses({.depths = {0, 1, 1, 1}, .plain = true}, "depth of 1 or more in stage 1");
  refuses({.width = 45}, "width 45 is not a multiple of 2 heads");
  refuses({.image_size = 0}, "must be positive");
  refuses({.channels = 0}, "must be positive");
  refuses({.classes = 0}, "must be positive");
  refuses({.length = 10}, "text models");
  const auto refused = [](MViTConfig config) {
    EXPECT_THROW(RevMViT(config, {.device = at::kMeta}), std::invalid_argument);
    EXPECT_THROW(PlainMViT(config, {.device = at::kMeta}), std::invalid_argument);
  };
  MViTConfig config = mvit_config(16, 1, {1, 1});
  config.stages[1].kv_stride = 0;
  refused(config);
  config = mvit_config(16, 1, {});
  refused(config);
  config = mvit_config(16, 1, {1});
  config.patch_stride = 0;
  refused(config);
  config.patch_stride = 4;
  config.mlp_ratio = 0;
  refused(config);
  auto model = make_model("mvit_cifar", {.width = 8});
  EXPECT_THROW(model->forward({.input = at::zeros({2, 3, 32, 31}), .target = {}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
