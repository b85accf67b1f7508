#include "pareprop/models/weights.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/registry.h"
#include "tests/io/temporary_folder.h"

namespace pareprop::models {
namespace {

using io::testing::message_of;
using io::testing::TemporaryFolder;
using Tensors = std::map<std::string, at::Tensor>;

std::shared_ptr<Model> small(const std::string& name, std::uint64_t seed, bool plain,
                             at::ScalarType dtype = at::kFloat) {
  Overrides change{.plain = plain};
  if (name == "roberta_base") {
    change.depths = {2};
    change.width = 24;
    change.vocabulary = 50;
    change.length = 8;
  } else {
    change.depths = name == "swin_tiny" ? std::vector{1, 2, 1, 1} : std::vector{2};
    change.width = name == "swin_tiny" ? 48 : 24;
    change.classes = 5;
  }
  return make_model(name, change, {.dtype = dtype, .seed = seed});
}

Tensors copy_of(const Model& model) {
  Tensors all;
  for (const auto& item : model.named_parameters()) all[item.key()] = item.value().detach().clone();
  return all;
}

void expect_equal(const Model& model, const Tensors& expected) {
  ASSERT_EQ(model.named_parameters().size(), expected.size());
  for (const auto& item : model.named_parameters()) {
    EXPECT_TRUE(item.value().equal(expected.at(item.key()))) << item.key();
  }
}

Tensors content(const std::filesystem::path& path) {
  const io::SafetensorsFile file(path);
  Tensors all;
  for (const std::string& name : file.names()) all[name] = file.tensor(name).clone();
  return all;
}

void write(const std::filesystem::path& path, const Tensors& tensors) {
  io::write_safetensors(path, io::NamedTensors(tensors.begin(), tensors.end()));
}

std::string refusal(Model& model, const std::filesystem::path& path, const NameMap& names) {
  return message_of<std::invalid_argument>(
      [&] { load_weights(model, io::SafetensorsFile(path), names); });
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Weights, ComeBackBitForBitUnderTheirOwnNames) {
  const TemporaryFolder folder;
  for (const char* name : {"vit_tiny", "swin_tiny", "roberta_base"}) {
    const auto saved = small(name, 1, false), loaded = small(name, 2, false);
    save_weights(*saved, folder / "w");
    load_weights(*loaded, io::SafetensorsFile(folder / "w"));
    expect_equal(*loaded, copy_of(*saved));
    for (const auto& p : loaded->parameters()) EXPECT_TRUE(p.requires_grad() && p.is_leaf());
  }
}

TEST(Weights, ComeBackBitForBitUnderHuggingFaceNames) {
  const TemporaryFolder folder;
  for (const char* name : {"vit_tiny", "swin_tiny", "roberta_base"}) {
    const auto saved = small(name, 1, true), loaded = small(name, 2, true);
    const NameMap names = hugging_face_names(*saved);
    save_weights(*saved, folder / "w", names, {{"made", "here"}});
    const io::SafetensorsFile file(folder / "w");
    EXPECT_EQ(
        file.metadata(),
        (io::SafetensorsMetadata{
            {"format", "pt"}, {"made", "here"}, {io::kSealKey, file.metadata().at(io::kSealKey)}}));
    load_weights(*loaded, file, names);
    expect_equal(*loaded, copy_of(*saved));
  }
}

TEST(Weights, QueriesKeysAndValuesAreJoinedAndPatchesAreConvolutions) {
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, true);
  save_weights(*model, folder / "w", hugging_face_names(*model));
  const Tensors theirs = content(folder / "w"), ours = copy_of(*model);
  EXPECT_EQ(theirs.at("vit.embeddings.patch_embeddings.projection.weight").sizes(),
            (at::IntArrayRef{24, 3, 16, 16}));
  const std::string attention = "vit.encoder.layer.1.attention.attention.";
  EXPECT_TRUE(ours.at("blocks.1.f.qkv.weight")
                  .equal(at::cat(
                      {theirs.at(attention + "query.weight"), theirs.at(attention + "key.weight"),
                       theirs.at(attention + "value.weight")},
                      0)));
}

TEST(Weights, AreConvertedFromEveryFloatingPointType) {
  const TemporaryFolder folder;
  for (const auto held : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    for (const auto wanted : {at::kFloat, at::kDouble, at::kBFloat16}) {
      Tensors tensors = copy_of(*small("vit_tiny", 1, false));
      for (auto& [name, value] : tensors) value = value.to(held);
      write(folder / "w", tensors);
      for (auto& [name, value] : tensors) value = value.to(wanted);
      const auto model = small("vit_tiny", 2, false, wanted);
      load_weights(*model, io::SafetensorsFile(folder / "w"));
      expect_equal(*model, tensors);
    }
  }
}

TEST(Weights, EverythingThatDoesNotFitIsListedAndNothingIsChanged) {
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, true);
  const NameMap names = hugging_face_names(*model);
  save_weights(*small("vit_tiny", 2, true), folder / "w", names);
  Tensors tensors = content(folder / "w");
  tensors.erase("vit.encoder.layer.0.attention.attention.key.bias");
  tensors["surplus"] = at::zeros({1});
  tensors["vit.layernorm.weight"] = at::zeros({25});
  tensors["vit.layernorm.bias"] = at::zeros({24}, at::kLong);
  tensors["classifier.weight"] = at::zeros({1000, 24});
  tensors["classifier.bias"] = at::zeros({1000});
  write(folder / "w", tensors);

  const Tensors before = copy_of(*model);
  const std::string message = refusal(*model, folder / "w", names);
  expect_equal(*model, before);
  EXPECT_EQ(message.find((folder / "w").string()), 0U) << message;
  EXPECT_TRUE(
      has(message,
          "\n  vit.encoder.layer.0.attention.attention.key.bias or "
          "vit.layers.0.attention.k_proj.bias is missing (for the parameter blocks.0.f.qkv.bias)"))
      << message;
  EXPECT_TRUE(has(message, "\n  surplus is not expected")) << message;
  EXPECT_TRUE(has(message, "\n  vit.layernorm.weight is [25], expected [24]\n")) << message;
  EXPECT_TRUE(has(message, "\n  vit.layernorm.bias is I64, expected floating-point")) << message;
  EXPECT_TRUE(has(message, "\n  classifier.weight is [1000, 24], expected [5, 24]")) << message;
  EXPECT_TRUE(has(message, ": the network in the file has 1000 classes, this one has 5\n"))
      << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 6) << message;
}

TEST(Weights, OfAnotherNetworkAreCountedAndFiveAreNamed) {
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, false);
  save_weights(*small("swin_tiny", 2, false), folder / "w");
  const std::string message = refusal(*model, folder / "w", own_names(*model));
  EXPECT_TRUE(has(message, " does not fit the network; no weight was changed: ")) << message;
  EXPECT_TRUE(has(message, " are missing, ")) << message;
  EXPECT_TRUE(has(message, " are not expected; for example\n")) << message;
  EXPECT_TRUE(has(message, " more")) << message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 6) << message;
}

TEST(Weights, ThatWereDamagedAreRefusedAndNothingIsChanged) {
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, false);
  save_weights(*small("vit_tiny", 2, false), folder / "w");
  std::string bytes = io::testing::content(folder / "w");
  bytes[bytes.size() - 1000] = static_cast<char>(bytes[bytes.size() - 1000] ^ 4);
  io::testing::put(folder / "w", bytes);
  const Tensors before = copy_of(*model);
  const std::string message = message_of<std::runtime_error>(
      [&] { load_weights(*model, io::SafetensorsFile(folder / "w")); });
  EXPECT_TRUE(has(message, "does not match its checksum")) << message;
  expect_equal(*model, before);
}

TEST(Weights, TheSameTensorUnderTwoNamesIsRefused) {
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, true);
  const NameMap names = hugging_face_names(*model);
  save_weights(*model, folder / "w", names);
  Tensors tensors = content(folder / "w");
  tensors["vit.layers.0.mlp.fc1.bias"] = at::zeros({96});
  write(folder / "w", tensors);
  EXPECT_TRUE(
      has(refusal(*model, folder / "w", names), "vit.layers.0.mlp.fc1.bias is not expected"));
}

TEST(Weights, HarmlessSurplusIsAllowed) {
  const TemporaryFolder folder;
  const auto model = small("roberta_base", 1, true);
  const NameMap names = hugging_face_names(*model);
  save_weights(*small("roberta_base", 2, true), folder / "w", names);
  Tensors tensors = content(folder / "w");
  tensors["lm_head.decoder.weight"] =
      tensors.at("roberta_prelayernorm.embeddings.word_embeddings.weight").clone();
  tensors["lm_head.decoder.bias"] = tensors.at("lm_head.bias").clone();
  tensors["roberta_prelayernorm.embeddings.position_ids"] = at::zeros({1, 8}, at::kLong);
  tensors["roberta_prelayernorm.pooler.dense.bias"] = at::zeros({24});
  write(folder / "w", tensors);
  load_weights(*model, io::SafetensorsFile(folder / "w"), names);
  expect_equal(*model, copy_of(*small("roberta_base", 2, true)));
}

TEST(Weights, AnOutputLayerThatIsNotTiedIsRefused) {
  const TemporaryFolder folder;
  const auto model = small("roberta_base", 1, true);
  const NameMap names = hugging_face_names(*model);
  save_weights(*model, folder / "w", names);
  Tensors tensors = content(folder / "w");
  tensors["lm_head.decoder.weight"] = at::zeros({50, 24});
  write(folder / "w", tensors);
  EXPECT_TRUE(
      has(refusal(*model, folder / "w", names), "lm_head.decoder.weight differs from the tensor"));
}

TEST(Weights, OtherNetworksAndPlacesAreRefused) {
  EXPECT_THROW(hugging_face_names(*small("vit_tiny", 1, false)), std::invalid_argument);
  const TemporaryFolder folder;
  const auto model = small("vit_tiny", 1, false);
  save_weights(*model, folder / "w");
  const auto meta = make_model("vit_tiny", {}, {.device = at::kMeta});
  EXPECT_THROW(load_weights(*meta, io::SafetensorsFile(folder / "w")), std::invalid_argument);
  EXPECT_THROW(under_names({{"unknown", at::zeros({1})}}, own_names(*model)),
               std::invalid_argument);
}

TEST(Weights, APrefixStandsBeforeOwnNames) {
  const TemporaryFolder folder;
  const auto saved = small("vit_tiny", 1, false), loaded = small("vit_tiny", 2, false);
  save_weights(*saved, folder / "w", own_names(*saved, "model."));
  EXPECT_EQ(content(folder / "w").count("model.head.bias"), 1U);
  load_weights(*loaded, io::SafetensorsFile(folder / "w"), own_names(*loaded, "model."));
  expect_equal(*loaded, copy_of(*saved));
}

}  // namespace
}  // namespace pareprop::models
