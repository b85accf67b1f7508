#include "pareprop/models/swin.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "pareprop/memory/caching_allocator.h"
#include "pareprop/models/registry.h"
#include "pareprop/ops/compare.h"

namespace pareprop::models {
namespace {

// Parameters in millions, with half a unit of the last published digit, and forward GMACs.
struct PublishedSwin {
  const char* name;
  double parameters, unit, gmacs;
};

void expect_published(const PublishedSwin& size, bool plain) {
  const ModelSummary summary = summarise(size.name, {.plain = plain});
  EXPECT_NEAR(double(summary.parameters) / 1e6, size.parameters, 0.51 * size.unit) << size.name;
  EXPECT_NEAR(summary.gmacs, size.gmacs, 0.01 * size.gmacs) << size.name;
  EXPECT_EQ(summary.tokens, 56 * 56);
  EXPECT_EQ(summary.stacks.size(), 4u);
  EXPECT_LT(summary.activation_bytes_reversible, summary.activation_bytes_stored);
}

TEST(Swin, SizesHaveTheirPublishedParametersAndMacs) {
  for (const PublishedSwin& size : {PublishedSwin{"swin_tiny", 30.22, 0.01, 5.01},
                                    {"swin_small", 51.54, 0.01, 9.26},
                                    {"swin_base", 90.86, 0.01, 16.36},
                                    {"swin_large", 202.7, 0.1, 36.56},
                                    {"swin_huge", 676.1, 0.1, 122.1},
                                    {"swin_giant", 2635, 1, 495.5}}) {
    expect_published(size, false);
  }
  EXPECT_EQ(summarise("swin_cifar").parameters, 2220706);
  EXPECT_EQ(summarise("swin_tiny").stacks, (std::vector<int>{2, 2, 6, 2}));
}

TEST(PlainSwin, SizesHaveTheirPublishedParametersAndMacs) {
  for (const PublishedSwin& size : {PublishedSwin{"swin_tiny", 28.29, 0.01, 4.49},
                                    {"swin_small", 49.61, 0.01, 8.74},
                                    {"swin_base", 87.77, 0.01, 15.43},
                                    {"swin_large", 196.5, 0.1, 34.48},
                                    {"swin_huge", 657.6, 0.1, 115.1},
                                    {"swin_giant", 2598, 1, 480.7}}) {
    expect_published(size, true);
  }
}

// Attention over the whole padded map at once: tokens of other windows are masked out, so nothing
// is rolled or cut.
at::Tensor attention_without_windows(const torch::nn::Module& module, const at::Tensor& x,
                                     std::int64_t heads, const Window& window) {
  const auto w = module.named_parameters();
  const auto batch = x.size(0), side = window.side, width = x.size(2), p = window.padded();
  const at::Tensor table = w["relative_position_bias_table"];
  const at::Tensor parted = at::zeros({p * p, p * p}, table.options().requires_grad(false));
  const at::Tensor index = at::zeros({p * p, p * p}, at::kLong);
  for (std::int64_t q = 0; q < p * p; ++q) {
    for (std::int64_t k = 0; k < p * p; ++k) {
      double part = 0.0;
      std::int64_t row = 0;
      for (const auto& [a, b] : {std::pair{q / p, k / p}, {q % p, k % p}}) {
        const auto from = (a - window.shift + p) % p, to = (b - window.shift + p) % p;
        if (from / window.size != to / window.size) part = -1e9;
        if ((a < window.shift) != (b < window.shift)) part = std::min(part, -100.0);
        row = row * (2 * window.size - 1) + from % window.size - to % window.size + window.size - 1;
      }
      parted[q][k].fill_(part);
      index[q][k].fill_(row);
    }
  }
  at::Tensor h = at::layer_norm(x, {width}, w["norm.weight"], w["norm.bias"], 1e-5)
                     .view({batch, side, side, width});
  h = at::constant_pad_nd(h, {0, 0, 0, p - side, 0, p - side}).reshape({batch, p * p, width});
  const auto qkv = at::linear(h, w["qkv.weight"], w["qkv.bias"])
                       .view({batch, p * p, 3, heads, width / heads})
                       .permute({2, 0, 3, 1, 4})
                       .unbind(0);
  const at::Tensor bias = table.index({index}).permute({2, 0, 1});
  const double scale = std::sqrt(double(heads) / double(width));
  const at::Tensor scores = at::matmul(qkv[0], qkv[1].transpose(-1, -2)).mul(scale);
  const at::Tensor mixed = at::matmul(at::softmax(scores.add(bias).add(parted), -1), qkv[2])
                               .transpose(1, 2)
                               .reshape({batch, p, p, width});
  return at::linear(mixed, w["proj.weight"], w["proj.bias"])
      .slice(1, 0, side)
      .slice(2, 0, side)
      .reshape({batch, side * side, width});
}

TEST(Swin, WindowAttentionIsMaskedAttentionOverTheWholeMap) {
  constexpr std::int64_t kWidth = 8, kHeads = 2;
  for (const bool shifted : {false, true}) {
    for (const std::int64_t side : {2, 4, 5, 8}) {
      WeightMaker make({.dtype = at::kDouble, .seed = 7});
      const Window window = Window::fitting(side, 4, shifted);
      WindowAttention attention({.width = kWidth, .heads = kHeads, .eps = 1e-5}, window, {}, make);
      for (auto& p : attention.parameters()) p.data().add_(at::randn_like(p), 0.3);
      const at::Tensor x = at::randn({3, side * side, kWidth}, at::kDouble);
      const at::Tensor dy = at::randn_like(x);
      std::vector<at::Tensor> results[2];
      for (const bool windows : {false, true}) {
        const at::Tensor leaf = x.clone().requires_grad_();
        const at::Tensor y = windows ? attention.forward(leaf, {.extras = {}})
                                     : attention_without_windows(attention, leaf, kHeads, window);
        y.backward(dy);
        auto& result = results[windows ? 1 : 0];
        result = {y.detach(), leaf.grad()};
        for (auto& p : attention.parameters()) {
          result.push_back(p.grad());
          p.mutable_grad().reset();
        }
      }
      EXPECT_LE(max_relative_error(results[0], results[1]), 1e-12) << side << " " << shifted;
    }
  }
}

TEST(Swin, OddMapsAreMergedWithZerosBesideThem) {
  WeightMaker make({.dtype = at::kDouble, .seed = 7});
  PatchMerging merging(2, 3, 1e-5, make);
  const auto w = merging.named_parameters();
  const at::Tensor x = at::randn({2, 9, 2}, at::kDouble);
  const at::Tensor y = merging.forward(x);
  ASSERT_EQ(y.sizes(), (at::IntArrayRef{2, 4, 4}));
  const at::Tensor none = at::zeros_like(x.select(1, 0));
  // Tokens 2 and 5 end the upper rows; columns come first.
  const at::Tensor upper_right = at::cat({x.select(1, 2), x.select(1, 5), none, none}, -1);
  const at::Tensor first =
      at::cat({x.select(1, 0), x.select(1, 3), x.select(1, 1), x.select(1, 4)}, -1);
  for (const auto& [place, four] : {std::pair{0, first}, std::pair{1, upper_right}}) {
    const at::Tensor expected = at::linear(
        at::layer_norm(four, {8}, w["norm.weight"], w["norm.bias"], 1e-5), w["reduction.weight"]);
    EXPECT_LE(max_relative_error({expected}, {y.select(1, place)}), 1e-12);
  }
}

TEST(Swin, OverridesChangeTheNetwork) {
  const auto model = make_model(
      "swin_tiny",
      {.depths = {1, 2, 3, 0}, .width = 48, .image_size = 64, .channels = 1, .classes = 7});
  EXPECT_EQ(model->stacks()[2]->depth(), 3);
  EXPECT_EQ(model->tokens(), 256);
  const auto weights = model->named_parameters();
  EXPECT_EQ(weights["patch_embed.weight"].sizes(), (at::IntArrayRef{48, 16}));
  EXPECT_EQ(weights["stages.1.blocks.1.g.fc1.weight"].sizes(), (at::IntArrayRef{384, 96}));
  EXPECT_EQ(weights["stages.1.downsample.reduction.weight"].sizes(), (at::IntArrayRef{192, 384}));
  EXPECT_EQ(weights["stages.0.fusion.fc2.weight"].sizes(), (at::IntArrayRef{48, 96}));
  EXPECT_EQ(model->forward(model->example(2, 1)).sizes(), (at::IntArrayRef{2, 7}));
}

TEST(Swin, BiasTableIsThatOfTheWindowCutDownToTheMap) {
  const auto model = make_model("swin_tiny", {.image_size = 64});  // maps of 16, 8, 4, 2
  const auto weights = model->named_parameters();
  const std::string table = ".blocks.0.f.relative_position_bias_table";
  EXPECT_EQ(weights["stages.1" + table].sizes(), (at::IntArrayRef{169, 6}));
  EXPECT_EQ(weights["stages.2" + table].sizes(), (at::IntArrayRef{49, 12}));
  EXPECT_EQ(weights["stages.3" + table].sizes(), (at::IntArrayRef{9, 24}));
}

TEST(Swin, WindowsAndMasksAreNotSaved) {
  for (const bool plain : {false, true}) {
    EXPECT_TRUE(make_model("swin_cifar", {.plain = plain})->buffers().empty());
  }
}

TEST(Swin, DropPathGrowsOverAllBlocksOfTheNetwork) {
  const auto model =
      make_model("swin_tiny", {.depths = {1}, .width = 24, .image_size = 32, .drop_path = 0.999});
  // Only the first block of all has none: with the seed fixed, no other branch is kept.
  const Batch batch = model->example(2, 1);
  const auto pass = std::make_shared<Pass>(3, 0);
  model->loss(batch, {.pass = pass}).backward();
  const auto weights = model->named_parameters();
  auto gradient = [&](const char* name) { return weights[name].grad().norm().item<double>(); };
  EXPECT_GT(gradient("stages.0.blocks.0.f.proj.weight"), 0.0);
  EXPECT_GT(gradient("stages.0.blocks.0.g.fc2.weight"), 0.0);
  EXPECT_EQ(gradient("stages.3.blocks.0.f.proj.weight"), 0.0);
  EXPECT_EQ(gradient("stages.3.blocks.0.g.fc2.weight"), 0.0);
}

std::string refusal(const SwinConfig& config) {
  try {
    check(config);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(Swin, BadConfigurationsAreRefused) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({.width = 100}), "swin: stage 0: width 100 is not a multiple of 3 heads");
  EXPECT_EQ(refusal({.heads = {3, 6, 10, 24}}),
            "swin: stage 2: width 384 is not a multiple of 10 heads");
  EXPECT_EQ(refusal({.depths = {2, 2, -1, 2}}),
            "swin: stage 2: expected a depth of 0 or more, got -1");
  EXPECT_EQ(refusal({.depths = {2, 2}}),
            "swin: expected depth and heads of each stage, got 2 depths and 4 numbers of heads");
  EXPECT_NE(refusal({.depths = {}, .heads = {}}), "");
  EXPECT_EQ(refusal({.window = 0}), "swin: expected a window of 1 or more, got 0");
  EXPECT_NE(refusal({.image = {.classes = 0}}), "");
  EXPECT_NE(refusal({.mlp_ratio = 0}), "");
  EXPECT_THROW(make_model("swin_tiny", {.image_size = 30}), std::invalid_argument);
  EXPECT_NO_THROW(make_model("swin_tiny", {.image_size = 30, .plain = true}));
  EXPECT_THROW(make_model("swin_tiny", {.depths = {1, 2}}), std::invalid_argument);
  EXPECT_THROW(make_model("swin_tiny", {.length = 128}), std::invalid_argument);
  auto model = make_model("swin_cifar");
  EXPECT_THROW(model->forward({.input = at::zeros({2, 3, 32, 36}), .target = {}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
