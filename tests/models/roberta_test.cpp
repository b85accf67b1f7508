#include "pareprop/models/roberta.h"

#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include "pareprop/models/registry.h"

namespace pareprop::models {
namespace {

const Overrides kSmall{.depths = {3}, .width = 48, .length = 24, .vocabulary = 101};

TEST(Roberta, SizesHaveTheirPublishedParameters) {
  const struct {
    const char* name;
    double plain, reversible, unit, body_gmacs, head_gmacs;  // the head on all 512 tokens
  } sizes[] = {{"roberta_base", 124.7, 125.3, 0.1, 48.3, 20.1},
               {"roberta_large", 355.4, 356.5, 0.1, 167.5, 26.9},
               {"roberta_xl", 2969, 0, 1, 1498, 69},
               {"roberta_xxl", 9891, 0, 1, 5051, 114}};
  for (const auto& size : sizes) {
    const ModelSummary plain = summarise(size.name, {.plain = true});
    EXPECT_NEAR(double(plain.parameters) / 1e6, size.plain, 0.51 * size.unit) << size.name;
    EXPECT_EQ(plain.tokens, 512);
    const double expected = size.body_gmacs + 0.15 * size.head_gmacs;  // 15 % of tokens are scored
    EXPECT_NEAR(plain.gmacs, expected, 0.01 * expected) << size.name;
    if (size.reversible > 0) {
      EXPECT_NEAR(double(summarise(size.name).parameters) / 1e6, size.reversible, 0.51 * size.unit);
    }
  }
}

TEST(Roberta, ScoresMaskedPositionsOnly) {
  for (bool plain : {false, true}) {
    Overrides overrides = kSmall;
    overrides.plain = plain;
    auto model = make_model("roberta_base", overrides);
    model->eval();
    Batch batch = model->example(2, 1);
    const auto scored = batch.target.ne(-100);
    const auto some = model->forward(batch);
    EXPECT_EQ(some.size(0), scored.sum().item<std::int64_t>());
    EXPECT_EQ(some.size(1), 101);
    batch.target.reset();
    const auto all = model->forward(batch);
    EXPECT_EQ(all.sizes(), (at::IntArrayRef{2, 24, 101}));
    EXPECT_TRUE(all.index({scored}).allclose(some, 1e-5, 1e-6));
  }
}

TEST(Roberta, PaddingChangesNothingElse) {
  auto model = make_model("roberta_base", kSmall);
  model->eval();
  Batch shorter = model->example(2, 1);
  shorter.target.reset();
  shorter.input = shorter.input.slice(1, 0, 16);
  const auto expected = model->forward(shorter);
  Batch padded = shorter;
  padded.input = at::cat({shorter.input, at::full({2, 8}, 1, at::kLong)}, 1);
  padded.mask = padded.input.ne(1);
  EXPECT_TRUE(model->forward(padded).slice(1, 0, 16).allclose(expected, 1e-4, 1e-5));
  padded.mask = at::ones_like(padded.mask);
  EXPECT_FALSE(model->forward(padded).slice(1, 0, 16).allclose(expected, 1e-4, 1e-5));
}

TEST(Roberta, LongTextsHaveAsManyPositions) {
  Overrides longer = kSmall;
  longer.length = 700;
  auto model = make_model("roberta_base", longer);
  model->eval();
  EXPECT_EQ(model->named_parameters()["embeddings.position"].sizes(), (at::IntArrayRef{702, 48}));
  const Batch batch = model->example(1, 1);
  EXPECT_EQ(batch.input.size(1), 700);
  EXPECT_EQ(model->forward(batch).size(1), 101);
}

TEST(Roberta, NormsBehindTheSumsAreOfOrdinaryNetworksOnly) {
  for (const Encoder encoder : {Encoder::roberta, Encoder::bert}) {
    Overrides overrides = kSmall;
    overrides.encoder = encoder;
    try {
      make_model("roberta_base", overrides, {.device = at::kMeta});
      ADD_FAILURE() << "not refused";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("cannot be reversible"), std::string::npos);
    }
    overrides.plain = true;
    const auto model = make_model("roberta_base", overrides, {.device = at::kMeta});
    EXPECT_EQ(model->coupling(), Coupling::sequential);
    EXPECT_THROW(model->set_mode(Mode::pareprop), std::invalid_argument);
    EXPECT_FALSE(model->named_parameters().contains("norm.weight"));
  }
  EXPECT_THROW(make_model("vit_tiny", {.encoder = Encoder::roberta}), std::invalid_argument);
  for (const Encoder each : {Encoder::norm_first, Encoder::roberta, Encoder::bert}) {
    EXPECT_EQ(parse_encoder(name(each)), each);
  }
  EXPECT_THROW(parse_encoder("gpt"), std::invalid_argument);
}

TEST(Roberta, BertCountsPositionsFromZero) {
  Overrides overrides = kSmall;
  overrides.plain = true;
  overrides.encoder = Encoder::bert;
  overrides.positions = overrides.length;
  auto model = make_model("roberta_base", overrides);
  model->eval();
  const auto scores = [&](std::int64_t tokens) {
    return model->forward({.input = at::full({1, tokens}, 1, at::kLong), .target = {}});
  };
  const at::Tensor two = scores(2), three = scores(3);
  {
    at::NoGradGuard guard;
    model->named_parameters()["embeddings.position"][2].add_(at::linspace(0, 1, 48));
  }
  EXPECT_TRUE(scores(2).equal(two));
  EXPECT_FALSE(scores(3).allclose(three));
  EXPECT_EQ(scores(24).size(1), 24);
  EXPECT_THROW(scores(25), std::invalid_argument);
}

TEST(Roberta, ClassesAreOfWholeTexts) {
  for (const bool plain : {false, true}) {
    Overrides overrides = kSmall;
    overrides.plain = plain;
    overrides.classes = 5;
    auto model = make_model("roberta_base", overrides);
    EXPECT_TRUE(classifies_texts(*model));
    const Batch batch = model->example(3, 1);
    EXPECT_EQ(batch.target.sizes(), (at::IntArrayRef{3}));
    EXPECT_EQ(model->forward(batch).sizes(), (at::IntArrayRef{3, 5}));
    model->loss(batch).backward();
    for (const auto& parameter : model->named_parameters()) {
      EXPECT_TRUE(parameter.value().grad().defined()) << parameter.key();
    }
  }
  EXPECT_FALSE(classifies_texts(*make_model("roberta_base", kSmall)));
}

TEST(Roberta, BadInputIsRefused) {
  EXPECT_THROW(RevRoberta(RobertaConfig{.length = 513}, WeightOptions{}), std::invalid_argument);
  EXPECT_THROW(make_model("roberta_base", {.length = 0}), std::invalid_argument);
  EXPECT_THROW(make_model("roberta_base", {.width = 50}), std::invalid_argument);
  EXPECT_THROW(make_model("roberta_base", {.image_size = 32}), std::invalid_argument);
  auto model = make_model("roberta_base", kSmall);
  Batch batch = model->example(2, 1);
  auto refuse = [&](const Batch& bad) { EXPECT_THROW(model->forward(bad), std::invalid_argument); };
  refuse({.input = batch.input.add(100), .target = {}});
  refuse({.input = batch.input.neg(), .target = {}});
  refuse({.input = batch.input.to(at::kFloat), .target = {}});
  refuse({.input = at::full({1, 600}, 5, at::kLong), .target = {}});
  refuse({.input = batch.input, .target = {}, .mask = batch.input.ne(1).slice(1, 0, 3)});
}

}  // namespace
}  // namespace pareprop::models
