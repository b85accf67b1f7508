#include "pareprop/models/adapt.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <gtest/gtest.h>

#include "pareprop/models/image_model.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/timm.h"
#include "pareprop/models/weights.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::models {
namespace {

using io::testing::message_of;
using io::testing::TemporaryFolder;

bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 1e-5, 1e-6);
}

TEST(Adapt, PositionsAreResampledAsTorchDoesItAndThePrefixStays) {
  for (const std::int64_t prefix : {0, 1, 2}) {
    const at::Tensor positions = at::randn({1, prefix + 49, 5});
    const at::Tensor made = resampled_positions(positions, prefix, 12);
    EXPECT_TRUE(made.narrow(1, 0, prefix).equal(positions.narrow(1, 0, prefix)));
    for (std::int64_t channel = 0; channel < 5; ++channel) {
      const at::Tensor map = positions.select(2, channel).slice(1, prefix).reshape({1, 1, 7, 7});
      const std::array<std::int64_t, 2> sizes{12, 12};
      EXPECT_TRUE(close(made.select(2, channel).slice(1, prefix),
                        at::upsample_bicubic2d(map, sizes, false).reshape({1, 144})));
    }
  }
}

TEST(Adapt, ATableOfDistancesStaysSymmetricAndAPlaneStaysAPlane) {
  // Its middle is the token itself, before and after.
  const at::Tensor side = at::linspace(-1.0, 1.0, 13);
  const at::Tensor bowl = side.square().unsqueeze(1).add(side.square()).reshape({169, 1});
  const at::Tensor made = resampled_table(bowl, 23).reshape({23, 23});
  EXPECT_TRUE(close(made, made.flip(0)));
  EXPECT_TRUE(close(made, made.t()));
  EXPECT_NEAR(made[11][11].item<double>(), 0.0, 0.02);
  EXPECT_TRUE(close(resampled_table(at::ones({9, 4}), 7), at::ones({49, 4})));
}

TEST(Adapt, RowsAreResampledLinearly) {
  const at::Tensor rows = at::arange(8.0).unsqueeze(1).repeat({1, 3}).to(at::kFloat);
  const at::Tensor made = resampled_rows(rows, 16);
  EXPECT_EQ(made.sizes(), (at::IntArrayRef{16, 3}));
  for (std::int64_t i = 1; i < 15; ++i) {
    EXPECT_NEAR(made[i][1].item<double>(), (static_cast<double>(i) + 0.5) / 2 - 0.5, 1e-5);
  }
}

std::shared_ptr<Model> tiny_vit(std::int64_t channels, std::uint64_t seed) {
  return make_model("vit_tiny",
                    {.depths = {1},
                     .width = 24,
                     .image_size = 32,
                     .channels = channels,
                     .classes = 5,
                     .dropout = 0.0,
                     .plain = true},
                    {.seed = seed});
}

// Both ways, from files with our names (patches as a linear layer) and timm's (a convolution).
TEST(Adapt, AGreyImageGivesWhatItsColouredCopyGave) {
  const TemporaryFolder folder;
  for (const bool ours : {true, false}) {
    for (const std::int64_t channels : {1, 3}) {
      const auto before = tiny_vit(channels, 1), after = tiny_vit(4 - channels, 2);
      const auto names = [&](const Model& model) {
        return ours ? own_names(model) : timm_names(model);
      };
      save_weights(*before, folder / "w", names(*before));
      const io::SafetensorsFile file(folder / "w");
      const Adapted adapted = load_adapted(*after, io::TensorFiles(file), names(*after));
      ASSERT_EQ(adapted.what.size(), 1U);
      const at::Tensor grey = at::randn({2, 1, 32, 32}), copy = grey.repeat({1, 3, 1, 1});
      before->eval();
      after->eval();
      const auto scores = [&](Model& model) {
        const bool takes_grey = dynamic_cast<ImageModel&>(model).shape().channels == 1;
        return model.forward({.input = takes_grey ? grey : copy, .target = {}});
      };
      EXPECT_TRUE(at::allclose(scores(*before), scores(*after), 1e-4, 1e-5));
    }
  }
}

TEST(Adapt, AHeadForOtherClassesStaysAsItWasMadeAndIsSaid) {
  const TemporaryFolder folder;
  Overrides change{.depths = {1}, .width = 24, .image_size = 32, .classes = 7, .plain = true};
  const auto before = make_model("vit_tiny", change, {.seed = 1});
  save_weights(*before, folder / "w");
  change.classes = 3;
  const auto after = make_model("vit_tiny", change, {.seed = 2});
  const at::Tensor head = after->named_parameters()["head.weight"].clone();
  const io::SafetensorsFile file(folder / "w");
  const Adapted adapted = load_adapted(*after, io::TensorFiles(file), own_names(*after));
  EXPECT_TRUE(adapted.new_head);
  EXPECT_EQ(adapted.what,
            std::vector<std::string>{
                "head for 7 classes replaced by a new one for 3, made from the seed"});
  EXPECT_TRUE(after->named_parameters()["head.weight"].equal(head));
  EXPECT_TRUE(
      after->named_parameters()["norm.weight"].equal(before->named_parameters()["norm.weight"]));
  EXPECT_THROW(load_weights(*after, file), std::invalid_argument) << "unless it is asked for";
}

TEST(Adapt, ClassesAreBroughtIntoAnotherOrder) {
  const TemporaryFolder folder;
  const auto before = tiny_vit(3, 1), after = tiny_vit(3, 2);
  save_weights(*before, folder / "w");
  const io::SafetensorsFile file(folder / "w");
  load_adapted(*after, io::TensorFiles(file), own_names(*after), {.class_order = {4, 0, 1, 2, 3}});
  for (const char* name : {"head.weight", "head.bias"}) {
    const at::Tensor ours = after->named_parameters()[name],
                     theirs = before->named_parameters()[name];
    EXPECT_TRUE(ours[0].equal(theirs[4]));
    EXPECT_TRUE(ours.slice(0, 1).equal(theirs.slice(0, 0, 4)));
  }
}

TEST(Adapt, WhatCannotBeAdaptedIsListedAndNothingIsChanged) {
  const TemporaryFolder folder;
  const auto before = tiny_vit(1, 1);
  save_weights(*before, folder / "w");
  // Another depth, and patches of another size.
  const auto after = make_model(
      "vit_tiny",
      {.depths = {2}, .width = 24, .patch = 8, .image_size = 32, .classes = 5, .plain = true},
      {.seed = 2});
  const at::Tensor norm = after->named_parameters()["norm.weight"].clone();
  const io::SafetensorsFile file(folder / "w");
  const std::string message = message_of<std::invalid_argument>(
      [&] { load_adapted(*after, io::TensorFiles(file), own_names(*after)); });
  EXPECT_NE(message.find("are missing"), std::string::npos) << message;
  EXPECT_NE(message.find("patch_embed.weight is [24, 256], expected [24, 192]"), std::string::npos)
      << message;
  EXPECT_TRUE(after->named_parameters()["norm.weight"].equal(norm));
}

TEST(Adapt, MViTsTablesFollowTheMap) {
  const TemporaryFolder folder;
  Overrides change{.depths = {1}, .image_size = 64, .classes = 3, .plain = true};
  const auto before = make_model("mvit_tiny", change, {.seed = 1});
  save_weights(*before, folder / "w", timm_names(*before));
  change.image_size = 96;
  const auto after = make_model("mvit_tiny", change, {.seed = 2});
  const io::SafetensorsFile file(folder / "w");
  const Adapted adapted = load_adapted(*after, io::TensorFiles(file), timm_names(*after));
  const auto table = [](const Model& model) {
    return model.named_parameters()["stages.0.blocks.0.f.rel_pos_h"];
  };
  EXPECT_TRUE(close(table(*after), resampled_rows(table(*before), 47)));
  EXPECT_EQ(adapted.what.front(), "tables of relative positions of 31 rows resampled to 47");
}

}  // namespace
}  // namespace pareprop::models
