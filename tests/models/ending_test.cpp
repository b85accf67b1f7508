#include "pareprop/models/ending.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "pareprop/models/registry.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"
#include "pareprop/ops/compare.h"

namespace pareprop::models {
namespace {

constexpr Ending kAllEndings[] = {Ending::concat, Ending::sum, Ending::mean,
                                  Ending::y1,     Ending::y2,  Ending::sum_minus_x};

struct EndingCase {
  const char* name;
  Overrides overrides;
};
const EndingCase kReversible[] = {
    {"vit_tiny", {.depths = {3}, .width = 48, .image_size = 64}},
    {"vit_tiny",
     {.depths = {2},
      .width = 48,
      .image_size = 64,
      .distillation = Distillation::heads,
      .class_token = true}},
    {"swin_tiny", {.depths = {2, 1, 2, 0}, .width = 24, .image_size = 56}},
    {"roberta_base", {.depths = {3}, .width = 48, .length = 24, .vocabulary = 101}}};

// And none of them is left. With the ending y1 the last G has no part in anything.
std::vector<at::Tensor> taken_gradients(Model& model) {
  std::vector<at::Tensor> all;
  for (auto& parameter : model.parameters()) {
    all.push_back(parameter.grad().defined() ? parameter.grad().clone()
                                             : at::zeros_like(parameter));
    parameter.mutable_grad().reset();
  }
  return all;
}

TEST(Endings, HaveNames) {
  for (const Ending ending : kAllEndings) EXPECT_EQ(parse_ending(name(ending)), ending);
  EXPECT_THROW(parse_ending("both"), std::invalid_argument);
}

TEST(Endings, EveryModeHasTheGradientsOfOrdinaryAutograd) {
  for (const auto& [model_name, overrides] : kReversible) {
    for (const Ending ending : kAllEndings) {
      SCOPED_TRACE(std::string(model_name) + ", " + std::string(name(ending)));
      Overrides changed = overrides;
      changed.dropout = 0.1;
      changed.ending = ending;
      auto model = make_model(model_name, changed, {.dtype = at::kDouble, .seed = 2});
      model->set_options({.precision = Precision::fp64});
      const Batch example = model->example(2, 1);
      const auto pass = [] { return std::make_shared<Pass>(1, 2); };
      model->loss(example, {.pass = pass(), .reference = true}).backward();
      const auto expected = taken_gradients(*model);
      for (const Mode mode : preset_modes()) {
        model->set_mode(mode);
        model->loss(example, {.pass = pass()}).backward();
        EXPECT_LT(max_relative_error(expected, taken_gradients(*model)), 1e-9) << name(mode);
      }
    }
  }
}

// The ordinary autograd of a network that is written down here.
at::Tensor vit_scores(const RevViT& model, const at::Tensor& images) {
  auto weights = model.named_parameters();
  const ViTConfig& c = model.config();
  at::Tensor x = at::linear(patches(images, c.patch), weights["patch_embed.weight"],
                            weights["patch_embed.bias"]);
  if (c.class_token) x = at::cat({weights["cls_token"].expand({x.size(0), 1, c.width}), x}, 1);
  x = x + weights["pos_embed"];
  Stack stack = model.stacks().front();
  const auto [y1, y2] = stack->reference(x, x);
  at::Tensor end;
  switch (c.ending) {
    case Ending::concat:
      end = at::cat({y1, y2}, 2);
      break;
    case Ending::sum:
      end = y1 + y2;
      break;
    case Ending::mean:
      end = (y1 + y2) / 2;
      break;
    case Ending::y1:
      end = y1;
      break;
    case Ending::y2:
      end = y2;
      break;
    case Ending::sum_minus_x:
      end = y1 + y2 - x;
      break;
  }
  end = at::layer_norm(end, {end.size(2)}, weights["norm.weight"], weights["norm.bias"], c.eps);
  end = c.class_token ? end.select(1, 0) : end.mean(1);
  return at::linear(end, weights["head.weight"], weights["head.bias"]);
}

TEST(Endings, AreReadByTheHeadOfViT) {
  for (const bool class_token : {false, true}) {
    for (const Ending ending : kAllEndings) {
      SCOPED_TRACE(std::string(name(ending)) + (class_token ? ", class token" : ""));
      const auto model = make_model("vit_tiny",
                                    {.depths = {2},
                                     .width = 48,
                                     .image_size = 32,
                                     .ending = ending,
                                     .class_token = class_token},
                                    {.dtype = at::kDouble, .seed = 2});
      model->set_options({.precision = Precision::fp64});
      const Batch example = model->example(3, 1);
      const at::Tensor scores = model->forward(example);
      const at::Tensor expected = vit_scores(dynamic_cast<const RevViT&>(*model), example.input);
      EXPECT_LT(max_relative_error({expected}, {scores}), 1e-12);
      EXPECT_EQ(model->tokens(), class_token ? 5 : 4);
      const at::Tensor weights = scores.detach().sin();
      expected.mul(weights).sum().backward();
      const auto wanted = taken_gradients(*model);
      scores.mul(weights).sum().backward();
      EXPECT_LT(max_relative_error(wanted, taken_gradients(*model)), 1e-9);
    }
  }
}

// y1 = x + F(x) and y2 = x + G(y1): only from the second block on they differ.
TEST(Endings, SumMinusInputOfOneBlockIsTheOrdinaryBlock) {
  const EndingCase cases[] = {
      {"vit_tiny", {.depths = {1}, .width = 48, .image_size = 32, .class_token = true}},
      {"swin_tiny", {.depths = {1, 1, 1, 1}, .width = 24, .image_size = 56}},
      {"roberta_base", {.depths = {1}, .width = 48, .length = 24, .vocabulary = 101}}};
  for (const auto& [model_name, overrides] : cases) {
    const auto scores = [&, name = model_name](const Overrides& changes) {
      const auto model = make_model(name, changes, {.dtype = at::kDouble, .seed = 2});
      model->set_options({.precision = Precision::fp64});
      model->eval();
      return model->forward(model->example(3, 1));
    };
    Overrides plain = overrides, ended = overrides;
    plain.plain = true;
    plain.class_token = false;
    const at::Tensor expected = scores(plain);
    ended.ending = Ending::sum_minus_x;
    EXPECT_LT(max_relative_error({expected}, {scores(ended)}), 1e-12) << model_name;
    ended.ending = Ending::sum;
    EXPECT_GT(max_relative_error({expected}, {scores(ended)}), 1e-3) << model_name;
  }
}

TEST(Endings, WithoutConcatSwinHasNoFusions) {
  const auto names = [](const Overrides& overrides) {
    return make_model("swin_tiny", overrides, {.device = at::kMeta})->named_parameters().keys();
  };
  EXPECT_EQ(names({.ending = Ending::sum}), names({.plain = true}));
}

TEST(Endings, BadOnesAreRefused) {
  for (const char* family : {"vit_tiny", "swin_tiny", "roberta_base"}) {
    EXPECT_THROW(make_model(family, {.plain = true, .ending = Ending::sum}, {.device = at::kMeta}),
                 std::invalid_argument);
  }
  for (const char* family : {"mvit_tiny", "swin_tiny", "roberta_base"}) {
    EXPECT_THROW(make_model(family, {.class_token = true}, {.device = at::kMeta}),
                 std::invalid_argument);
  }
  EXPECT_THROW(make_model("mvit_tiny", {.ending = Ending::sum}, {.device = at::kMeta}),
               std::invalid_argument);
  EXPECT_THROW(make_model("vit_tiny", {.distillation = Distillation::token}, {.device = at::kMeta}),
               std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
