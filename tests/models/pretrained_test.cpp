#include "pareprop/models/pretrained.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/hugging_face_config.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/timm.h"
#include "pareprop/models/timm_config.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::models {
namespace {

using io::testing::message_of;
using io::testing::put;
using io::testing::TemporaryFolder;

struct Case {
  std::string model;
  Overrides change;
};

// Of every family, with sizes that none of the named networks has.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"vit_tiny",
       {.depths = {2},
        .width = 40,
        .heads = {5},
        .patch = 8,
        .image_size = 24,
        .channels = 1,
        .classes = 3,
        .no_qkv_bias = true,
        .plain = true}},
      {"vit_tiny",
       {.depths = {1},
        .width = 48,
        .mlp_ratio = 1.5,
        .image_size = 32,
        .classes = 4,
        .distillation = Distillation::heads,
        .plain = true}},
      {"swin_tiny",
       {.depths = {1, 2, 1, 2},
        .width = 24,
        .heads = {2, 4, 6, 8},
        .window = 3,
        .image_size = 64,
        .classes = 4,
        .plain = true}},
      {"mvit_tiny", {.image_size = 64, .classes = 4, .plain = true}},
      {"roberta_base",
       {.depths = {2},
        .width = 48,
        .heads = {4},
        .vocabulary = 77,
        .positions = 40,
        .norm_eps = 1e-7,
        .plain = true}}};
  return all;
}

std::vector<std::vector<std::int64_t>> shapes_of_weights(const Model& model) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const auto& weight : model.parameters()) shapes.push_back(weight.sizes().vec());
  return shapes;
}

void expect_round_trip(const Case& one, NamesOf names, const TemporaryFolder& folder) {
  const auto model = make_model(one.model, one.change, {.seed = 1});
  const bool timm = names == NamesOf::timm;
  save_weights(*model, folder / "model.safetensors",
               timm ? timm_names(*model) : hugging_face_names(*model));
  put(folder / "config.json",
      timm ? timm_config(*model, {}, {{0.5F}, {0.5F}}) : hugging_face_config(*model, {}));
  const Pretrained pretrained(folder.path());
  EXPECT_EQ(pretrained.names(), names);
  EXPECT_TRUE(pretrained.has_head());
  ASSERT_TRUE(pretrained.architecture().has_value());
  const Architecture& found = *pretrained.architecture();
  const auto again = make_model(found.model, found.sizes, {.seed = 2});
  ASSERT_EQ(shapes_of_weights(*again), shapes_of_weights(*model)) << one.model;
  EXPECT_TRUE(pretrained.load(*again).what.empty());
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(again->named_parameters()[item.key()].equal(item.value())) << item.key();
  }
  // What no shape tells is right too.
  const Batch batch = model->example(2, 3);
  model->eval();
  again->eval();
  EXPECT_TRUE(model->forward(batch).equal(again->forward(batch))) << one.model;
}

TEST(Pretrained, HuggingFacesFolderTellsTheWholeNetwork) {
  for (const Case& one : cases()) {
    if (one.model == "mvit_tiny") continue;
    expect_round_trip(one, NamesOf::hugging_face, TemporaryFolder());
  }
}

TEST(Pretrained, TimmsFolderTellsTheWholeNetwork) {
  for (const Case& one : cases()) {
    if (one.model == "roberta_base") continue;
    expect_round_trip(one, NamesOf::timm, TemporaryFolder());
  }
}

TEST(Pretrained, ShapesAloneTellSizesThatHaveAName) {
  const TemporaryFolder folder;
  const auto model = make_model("vit_tiny", {.classes = 3, .plain = true});
  save_weights(*model, folder / "w", timm_names(*model));
  const Pretrained pretrained(folder / "w");
  EXPECT_EQ(pretrained.architecture()->model, "vit_tiny");
  EXPECT_EQ(pretrained.architecture()->sizes.classes, 3);
  EXPECT_EQ(pretrained.architecture()->sizes.image_size, 224);
  EXPECT_FALSE(pretrained.needs_heads());
  EXPECT_NE(pretrained.assumed().find("that of vit_tiny"), std::string::npos);
}

TEST(Pretrained, OurOwnReversibleNetworkIsKnownByItsShapes) {
  const TemporaryFolder folder;
  save_weights(*make_model("vit_tiny"), folder / "w");
  const Pretrained pretrained(folder / "w");
  EXPECT_EQ(pretrained.names(), NamesOf::pareprop);
  EXPECT_EQ(pretrained.architecture()->model, "vit_tiny");
  EXPECT_FALSE(pretrained.architecture()->sizes.plain);
}

// Endings of one stream's width leave the shapes of a plain network.
TEST(Pretrained, AssumesThatOurOwnShapesArePlain) {
  const TemporaryFolder folder;
  const auto assumed = [&](const std::string& name, const Overrides& change) {
    save_weights(*make_model(name, change), folder / "w");
    return Pretrained(folder / "w").assumed();
  };
  const Overrides ended{.ending = Ending::sum, .class_token = true};
  for (const Overrides& change : {ended, Overrides{.plain = true}}) {
    EXPECT_NE(assumed("vit_cifar", change).find("plain unless --ending is named"),
              std::string::npos);
  }
  EXPECT_EQ(assumed("vit_cifar", {}), "");
  EXPECT_EQ(assumed("mvit_cifar", {.plain = true}), "");
}

TEST(Pretrained, AReversibleViTWithAClassTokenIsNotTakenAsPlain) {
  const TemporaryFolder folder;
  const auto model = make_model("vit_cifar", {.class_token = true});
  save_weights(*model, folder / "w");
  const Pretrained pretrained(folder / "w");
  EXPECT_EQ(pretrained.assumed(), "");
  const Overrides& sizes = pretrained.architecture()->sizes;
  EXPECT_FALSE(sizes.plain);
  EXPECT_TRUE(sizes.class_token);
  EXPECT_EQ(shapes_of_weights(*make_model(pretrained.architecture()->model, sizes)),
            shapes_of_weights(*model));
}

TEST(Pretrained, NamesThatNobodyKnowsAreRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::vector<std::string>& names) {
    io::NamedTensors tensors;
    for (const std::string& name : names) tensors.emplace_back(name, at::zeros({1}));
    io::write_safetensors(folder / "w", tensors);
    return message_of<std::invalid_argument>([&] { Pretrained pretrained(folder / "w"); });
  };
  for (const std::vector<std::string>& slowfasts :
       {std::vector<std::string>{"rev_backbone.layers.0.F.norm.weight"},
        {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.projection.weight"},
        {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "blocks.0.attn.pool_q.weight"}}) {
    EXPECT_NE(refusal(slowfasts).find("convert_slowfast.py"), std::string::npos);
  }
  const std::string half = refusal({"patch_embed.proj.weight", "blocks.0.attn.qkv.weight"});
  EXPECT_NE(half.find((folder / "w").string() + ": its tensors have names of timm, but not all"),
            std::string::npos)
      << half;
}

// Whatever shapes a file has, it is refused or read: sizes are divided by each other.
TEST(Pretrained, AbsurdShapesAreNoCrash) {
  const TemporaryFolder folder;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {0}, {0, 0}, {1, 0, 0, 0}, {3, 1, 2, 5}}) {
    const at::Tensor odd = at::zeros(shape);
    io::write_safetensors(folder / "w", {{"patch_embed.proj.weight", odd},
                                         {"blocks.0.attn.qkv.weight", odd},
                                         {"pos_embed", odd},
                                         {"cls_token", odd},
                                         {"norm.weight", odd},
                                         {"blocks.0.mlp.fc1.weight", odd}});
    try {
      Pretrained pretrained(folder / "w");
    } catch (const std::invalid_argument&) {
    }
  }
}

}  // namespace
}  // namespace pareprop::models
