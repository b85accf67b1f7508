#include "pareprop/models/fine_tuning.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "pareprop/models/named_tensors.h"
#include "pareprop/models/registry.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::models {
namespace {

using io::testing::message_of;

std::shared_ptr<Model> on_meta(const std::string& name, const Overrides& overrides) {
  return make_model(name, overrides, {.device = at::kMeta});
}

std::vector<std::string> trained_names(const Model& model) {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : trained_parameters(model)) names.push_back(name);
  return names;
}

TEST(Freeze, FreezesWhatThePatternsName) {
  const auto model = on_meta("vit_tiny", {.depths = {2}});
  freeze(*model, "patch_embed.*,pos_embed,blocks.0.*,!blocks.0.g.fc2.*");
  const auto trained = trained_names(*model);
  const auto trains = [&](const std::string& name) {
    return std::find(trained.begin(), trained.end(), name) != trained.end();
  };
  EXPECT_FALSE(trains("patch_embed.weight"));
  EXPECT_FALSE(trains("pos_embed"));
  EXPECT_FALSE(trains("blocks.0.f.qkv.weight"));
  EXPECT_TRUE(trains("blocks.0.g.fc2.bias"));
  EXPECT_TRUE(trains("blocks.1.f.qkv.weight"));
  EXPECT_TRUE(trains("head.weight"));
  freeze(*model, "*,!head*");
  EXPECT_EQ(trained_names(*model), (std::vector<std::string>{"head.weight", "head.bias"}));
}

TEST(Freeze, SaysWhatFitsNothingAndWhatLeavesNothing) {
  const auto model = on_meta("vit_tiny", {.depths = {2}});
  const auto refusal = [&](const std::string& patterns) {
    return message_of<std::invalid_argument>([&] { freeze(*model, patterns); });
  };
  const std::string mistyped = refusal("head.*,blcks.1.f.qkv.*");
  EXPECT_NE(mistyped.find("no parameter fits 'blcks.1.f.qkv.*'"), std::string::npos) << mistyped;
  EXPECT_NE(mistyped.find("blocks.1.f.qkv.weight"), std::string::npos) << mistyped;
  EXPECT_NE(refusal("").find("no parameter fits ''"), std::string::npos);
  EXPECT_NE(refusal("head.*,,pos_embed").find("no parameter fits ''"), std::string::npos);
  EXPECT_NE(refusal("*").find("'*' freezes everything"), std::string::npos);
  EXPECT_EQ(trained_names(*model).size(), model->parameters().size()) << "nothing was frozen";
}

// Every family, both networks: layers grow along the network, and each has parameters.
TEST(Layers, GoFromTheEmbeddingsToTheHead) {
  struct Placed {
    const char* name;
    Overrides overrides;
    int blocks;
    std::map<std::string, int> some;
  };
  const std::vector<Placed> cases = {
      {"vit_tiny",
       {.depths = {3}},
       3,
       {{"patch_embed.weight", 0},
        {"pos_embed", 0},
        {"blocks.0.f.qkv.weight", 1},
        {"blocks.2.g.fc1.bias", 3},
        {"norm.weight", 4},
        {"head.bias", 4}}},
      {"swin_tiny",
       {.depths = {1, 2, 1, 1}},
       5,
       {{"patch_norm.weight", 0},
        {"stages.0.blocks.0.f.qkv.weight", 1},
        {"stages.0.downsample.reduction.weight", 1},
        {"stages.1.blocks.1.g.fc1.bias", 3},
        {"stages.1.downsample.norm.weight", 3},
        {"stages.3.blocks.0.f.qkv.bias", 5},
        {"head.weight", 6}}},
      {"mvit_tiny",
       {.depths = {1, 2, 2, 1}},
       6,
       {{"patch_embed.weight", 0}, {"stages.0.blocks.0.f.proj.weight", 1}, {"norm.bias", 7}}},
      {"roberta_base",
       {.depths = {2}},
       2,
       {{"embeddings.word", 0},
        {"embeddings.norm.weight", 0},
        {"blocks.1.f.qkv.weight", 2},
        {"head_dense.weight", 3},
        {"head_bias", 3}}}};
  for (const Placed& c : cases) {
    for (const bool plain : {false, true}) {
      SCOPED_TRACE(std::string(c.name) + (plain ? " plain" : ""));
      Overrides overrides = c.overrides;
      overrides.plain = plain;
      const auto names = parameter_names(*on_meta(c.name, overrides));
      const Layers layers = layers_of(names, names);
      EXPECT_EQ(layers.last, c.blocks + 1);
      std::map<std::string, int> found;
      std::vector<int> sizes(static_cast<std::size_t>(layers.last) + 1);
      for (std::size_t i = 0; i < names.size(); ++i) {
        found[names[i]] = layers.of[i];
        ++sizes.at(static_cast<std::size_t>(layers.of[i]));
      }
      for (const auto& [name, layer] : c.some) EXPECT_EQ(found.at(name), layer) << name;
      EXPECT_EQ(std::count(sizes.begin(), sizes.end(), 0), 0);
    }
  }
}

TEST(Layers, OfAStageBeginWithWhatLeadsIntoIt) {
  const auto names = parameter_names(*on_meta("mvit_tiny", {.depths = {1, 2, 2, 1}}));
  const Layers of_two = layers_of({"stages.1.fusion.fc1.weight", "stages.1.transition.f.qkv.weight",
                                   "stages.1.blocks.0.f.qkv.weight"},
                                  names);
  EXPECT_EQ(of_two.of, (std::vector<int>{2, 2, 3}));
  EXPECT_THROW(layers_of({"a.weight"}, {"a.weight", "b.weight"}), std::invalid_argument);
}

}  // namespace
}  // namespace pareprop::models
