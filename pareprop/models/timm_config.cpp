#include "pareprop/models/timm_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "pareprop/models/mvit.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/timm.h"
#include "pareprop/models/vit.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/nearest.h"

namespace pareprop::models {
namespace {

using nlohmann::ordered_json;

// Beginnings of timm's names, up to the size, and the networks of ours that are the same. What
// follows is the patch, the window and the size of the images, or the way of training.
struct Known {
  const char* timm;
  const char* ours;
};
constexpr Known kKnown[] = {
    {"vit_tiny", "vit_tiny"},         {"vit_small", "vit_small"},   {"vit_base", "vit_base"},
    {"vit_large", "vit_large"},       {"vit_huge", "vit_huge"},     {"vit_giant", "vit_giant"},
    {"vit_gigantic", "vit_gigantic"}, {"deit_tiny", "vit_tiny"},    {"deit_small", "vit_small"},
    {"deit_base", "vit_base"},        {"swin_tiny", "swin_tiny"},   {"swin_small", "swin_small"},
    {"swin_base", "swin_base"},       {"swin_large", "swin_large"}, {"mvitv2_tiny", "mvit_tiny"},
    {"mvitv2_small", "mvit_small"},   {"mvitv2_base", "mvit_base"}, {"mvitv2_large", "mvit_large"},
};

bool begins_name(const std::string& name, const std::string& begin) {
  return name.starts_with(begin) && (name.size() == begin.size() || name[begin.size()] == '_');
}

std::string network_of(const ConfigFile& config, const std::string& architecture) {
  for (const Known& known : kKnown) {
    if (begins_name(architecture, known.timm)) return known.ours;
  }
  // "swinv2_tiny_window8_256" is compared as "swinv2_tiny".
  std::size_t end = architecture.find('_');
  if (end != std::string::npos) end = architecture.find('_', end + 1);
  std::vector<std::string> names;
  std::string all;
  for (const Known& known : kKnown) {
    names.emplace_back(known.timm);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  const std::string near = text::nearest(architecture.substr(0, end), names);
  throw std::invalid_argument(config.path() + ": the architecture " +
                              text::printable(architecture) + " is not supported; " +
                              (near.empty() ? "expected a name that begins with one of "
                                            : "the nearest that is: " + near + "; all are ") +
                              all);
}

// What creates the network in timm besides its name.
constexpr const char* kArguments[] = {
    "img_size",      "patch_size",      "embed_dim",      "depth",          "depths",
    "num_heads",     "mlp_ratio",       "in_chans",       "num_classes",    "window_size",
    "qkv_bias",      "drop_rate",       "drop_path_rate", "proj_drop_rate", "attn_drop_rate",
    "pos_drop_rate", "strict_img_size", "global_pool"};

void check_arguments(const ConfigFile& arguments) {
  for (const std::string& key : arguments.keys()) {
    if (std::find(std::begin(kArguments), std::end(kArguments), key) != std::end(kArguments)) {
      continue;
    }
    if (!arguments.has(key)) continue;
    arguments.fail("model_args: " + key, "networks here have no such setting");
  }
}

const SizeKeys kKeys{.width = "embed_dim",
                     .depths = "depth",
                     .heads = "num_heads",
                     .mlp_ratio = "mlp_ratio",
                     .patch = "patch_size",
                     .window = "window_size",
                     .image_size = "input_size",
                     .channels = "in_chans",
                     .classes = "num_classes",
                     .vocabulary = "",
                     .positions = "",
                     .qkv_bias = "qkv_bias"};

// A number, or one for each stage.
std::vector<int> each_of(const ConfigFile& config, const std::string& key) {
  try {
    const auto one = config.whole(key);
    return one ? std::vector{static_cast<int>(*one)} : std::vector<int>();
  } catch (const std::invalid_argument&) {
    return config.wholes(key).value_or(std::vector<int>());
  }
}

// The number behind a word in a name: 16 behind "patch" in vit_small_patch16_224.
std::optional<std::int64_t> number_behind(const std::string& name, const std::string& word) {
  const std::size_t at = name.find(word);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = at + word.size();
  const std::size_t end = std::min(name.find_first_not_of("0123456789", begin), name.size());
  if (end == begin || end - begin > 4) return std::nullopt;
  return std::stoll(name.substr(begin, end - begin));
}

// How the weights are used as they were trained. Early files of timm have it in one with the rest.
ConfigFile usual_of(const ConfigFile& config) {
  return config.has("pretrained_cfg") ? config.part("pretrained_cfg") : config;
}

// What model_args, or else the name, say.
Overrides said_by(const ConfigFile& config, const std::string& architecture,
                  const std::string& network, const Told& told) {
  const ConfigFile arguments = config.part("model_args"), usual = usual_of(config);
  check_arguments(arguments);
  Overrides said{.plain = true};
  const auto base = make_model(network, {.plain = true}, {.device = at::kMeta});
  if (const auto* vit = dynamic_cast<const PlainViT*>(base.get())) {
    said.width = vit->config().width;
    said.depths = {vit->config().depth};
    said.heads = {static_cast<int>(vit->config().heads)};
    said.patch = number_behind(architecture, "patch").value_or(16);
  } else if (const auto* swin = dynamic_cast<const PlainSwin*>(base.get())) {
    said.width = swin->config().width;
    said.depths = swin->config().depths;
    said.window = number_behind(architecture, "window").value_or(7);
    said.patch = number_behind(architecture, "patch").value_or(4);
  } else if (const auto* mvit = dynamic_cast<const PlainMViT*>(base.get())) {
    said.width = mvit->config().width;
    for (const MViTStage& stage : mvit->config().stages) said.depths.push_back(stage.depth);
  }
  if (const auto widths = each_of(arguments, "embed_dim"); !widths.empty()) {
    said.width = widths.front();
  }
  if (const auto depth = arguments.whole("depth")) said.depths = {static_cast<int>(*depth)};
  if (const auto depths = arguments.wholes("depths")) said.depths = *depths;
  if (auto heads = each_of(arguments, "num_heads"); !heads.empty()) said.heads = std::move(heads);
  said.mlp_ratio = arguments.number("mlp_ratio");
  if (const auto patch = arguments.side("patch_size")) said.patch = patch;
  if (const auto window = arguments.side("window_size")) said.window = window;
  said.no_qkv_bias = !arguments.flag("qkv_bias").value_or(!told.sizes.no_qkv_bias);
  said.channels = arguments.whole("in_chans").value_or(3);
  said.image_size = arguments.side("img_size");
  if (const auto input = usual.wholes("input_size"); input && input->size() == 3) {
    if (!arguments.has("in_chans")) said.channels = input->front();
    if (!said.image_size) said.image_size = input->back();
  }
  said.classes = arguments.whole("num_classes");
  if (!said.classes) said.classes = config.whole("num_classes");
  if (!said.classes) said.classes = usual.whole("num_classes");
  return said;
}

std::optional<ImageInput> input_of(const ConfigFile& usual) {
  const auto mean = usual.numbers("mean"), deviation = usual.numbers("std");
  if (!mean || !deviation) return std::nullopt;
  const auto of_colours = [](const auto& values) {
    return values.size() == 1 || values.size() == 3;
  };
  if (!of_colours(*mean) || !of_colours(*deviation)) {
    usual.fail("pretrained_cfg: mean, std", "expected one number, or one for each colour");
  }
  if (std::any_of(deviation->begin(), deviation->end(), [](float each) { return !(each > 0); })) {
    usual.fail("pretrained_cfg: std", "expected more than 0");
  }
  ImageInput input{*mean, *deviation, usual.number("crop_pct").value_or(1.0)};
  if (!(input.centre_share > 0.0 && input.centre_share <= 1.0)) {
    usual.fail("pretrained_cfg: crop_pct", "expected more than 0 and at most 1");
  }
  return input;
}

void read_label_names(const ConfigFile& config, const Told& told, const std::string& weights,
                      Architecture& found) {
  auto labels = config.words("label_names");
  if (!labels) labels = usual_of(config).words("label_names");
  if (!labels || !told.sizes.classes) return;
  if (static_cast<std::int64_t>(labels->size()) != *told.sizes.classes) {
    config.fail("label_names", "it names " + std::to_string(labels->size()) +
                                   " classes, but the head in " + weights + " is for " +
                                   std::to_string(*told.sizes.classes) + "; nothing was loaded");
  }
  found.labels = *labels;
}

ordered_json arguments_of(const ViTConfig& c) {
  return {{"patch_size", c.patch},
          {"embed_dim", c.width},
          {"depth", c.depth},
          {"num_heads", c.heads},
          {"mlp_ratio", static_cast<double>(c.mlp_hidden) / static_cast<double>(c.width)},
          {"qkv_bias", c.qkv_bias}};
}

ordered_json arguments_of(const SwinConfig& c) {
  return {{"patch_size", c.patch}, {"embed_dim", c.width},    {"depths", c.depths},
          {"num_heads", c.heads},  {"window_size", c.window}, {"mlp_ratio", c.mlp_ratio},
          {"qkv_bias", c.qkv_bias}};
}

// The eps of norms that timm's networks of the family have.
void expect_eps(double eps, double theirs, const std::string& family) {
  if (eps == theirs) return;
  throw std::invalid_argument("timm's " + family + " has norms of another eps than this network (" +
                              std::to_string(eps) +
                              "): its scores would be others; use --names hugging-face or own");
}

// timm has no arguments for the sizes of MViT.
std::string mvit_name(const MViTConfig& c) {
  for (const Known& known : kKnown) {
    const auto model = make_model(known.ours, {.plain = true}, {.device = at::kMeta});
    const auto* mvit = dynamic_cast<const PlainMViT*>(model.get());
    if (mvit == nullptr) continue;
    const MViTConfig& own = mvit->config();
    const auto depth_is = [](const MViTStage& a, const MViTStage& b) { return a.depth == b.depth; };
    if (own.width == c.width && own.heads == c.heads && own.mlp_ratio == c.mlp_ratio &&
        own.widen_in_mlp == c.widen_in_mlp && own.patch_kernel == c.patch_kernel &&
        std::equal(own.stages.begin(), own.stages.end(), c.stages.begin(), c.stages.end(),
                   depth_is)) {
      return known.timm;
    }
  }
  throw std::invalid_argument(
      "timm has MViTv2 only in the sizes tiny, small, base and large, and this network has another "
      "one; use --names own");
}

}  // namespace

Architecture read_timm(const ConfigFile& config, const Told& told, const std::string& weights) {
  const std::string architecture = config.word("architecture").value_or("");
  Architecture found;
  found.model = network_of(config, architecture);
  const std::string family = found.model.substr(0, found.model.find('_'));
  if (family != told.family) {
    config.fail("architecture", architecture + " contradicts the weights: " + weights +
                                    (told.family.empty() ? " has none of its tensors"
                                                         : " has those of a " + told.family) +
                                    "; nothing was loaded");
  }
  found.sizes = said_by(config, architecture, found.model, told);
  // Without a head timm says that there are no classes, or how many there were.
  if (!told.has_head) found.sizes.classes.reset();
  SizeKeys keys = kKeys;
  if (!config.part("model_args").has("embed_dim")) keys.width = architecture + ", of width";
  if (family != "vit") keys.depths = "depths";
  check_agreement(config.path(), found.sizes, keys, weights, told.sizes);
  found.sizes.mlp_ratio = told.sizes.mlp_ratio;
  found.sizes.distillation = told.sizes.distillation;
  if (!told.sizes.heads.empty()) found.sizes.heads = told.sizes.heads;
  if (!found.sizes.image_size) found.sizes.image_size = told.sizes.image_size;
  if (family == "mvit") found.sizes.patch.reset();
  found.sizes.drop_path = config.part("model_args").probability("drop_path_rate");
  for (const ConfigFile& part : {config, config.part("model_args")}) {
    const std::string pool = part.word("global_pool").value_or("");
    if (pool.empty() || pool == (family == "vit" ? "token" : "avg")) continue;
    config.fail("global_pool", "networks here have no such pooling, got " + text::in_quotes(pool));
  }
  found.input = input_of(usual_of(config));
  read_label_names(config, told, weights, found);
  return found;
}

std::string timm_config(const Model& model, const std::vector<std::string>& labels,
                        const ImageInput& input) {
  timm_names(model);  // throws for what timm does not have
  const auto& shape = dynamic_cast<const ImageModel&>(model).shape();
  std::string architecture;
  std::int64_t features = 0;
  ordered_json arguments = ordered_json::object();
  if (const auto* vit = dynamic_cast<const PlainViT*>(&model)) {
    expect_eps(vit->config().eps, 1e-6, "ViT");
    architecture = vit->config().distillation == Distillation::none
                       ? "vit_base_patch16_224"
                       : "deit_base_distilled_patch16_224";
    arguments = arguments_of(vit->config());
    features = vit->config().width;
  } else if (const auto* swin = dynamic_cast<const PlainSwin*>(&model)) {
    expect_eps(swin->config().eps, 1e-5, "Swin");
    if (shape.image_size % swin->config().patch != 0) {
      throw std::invalid_argument(
          "timm's Swin takes images whose size is a multiple of the patch (" +
          std::to_string(swin->config().patch) + "), and this network's is " +
          std::to_string(shape.image_size) + "; use --names hugging-face");
    }
    architecture = "swin_tiny_patch4_window7_224";
    arguments = arguments_of(swin->config());
    features = swin->config().width_of(swin->config().stages() - 1);
  } else {
    const MViTConfig& mvit = dynamic_cast<const PlainMViT&>(model).config();
    expect_eps(mvit.eps, 1e-6, "MViT");
    constexpr std::int64_t kWhole = 32;  // pixels of a token in the last stage
    if (shape.image_size % kWhole != 0) {
      throw std::invalid_argument(
          "timm's MViT takes images whose size is a multiple of 32, and this network's is " +
          std::to_string(shape.image_size) + "; use --names own");
    }
    architecture = mvit_name(mvit);
    features = mvit.width << (mvit.stages.size() - 1);
  }
  arguments["img_size"] = shape.image_size;
  arguments["in_chans"] = shape.channels;
  const auto each = [](std::vector<float> values) {
    if (values.size() == 1) values.resize(3, values[0]);
    return values;
  };
  ordered_json usual = {{"num_classes", shape.classes},
                        {"input_size", {shape.channels, shape.image_size, shape.image_size}},
                        {"fixed_input_size", true},
                        {"interpolation", "bicubic"},
                        {"crop_pct", input.centre_share},
                        {"mean", each(input.mean)},
                        {"std", each(input.deviation)},
                        {"first_conv", "patch_embed.proj"},
                        {"classifier", architecture.starts_with("vit") ? "head" : "head.fc"}};
  if (architecture.starts_with("deit")) usual["classifier"] = {"head", "head_dist"};
  if (!labels.empty()) usual["label_names"] = labels;
  const ordered_json config = {{"architecture", architecture},
                               {"num_classes", shape.classes},
                               {"num_features", features},
                               {"pretrained_cfg", usual},
                               {"model_args", arguments}};
  return config.dump(2) + "\n";
}

}  // namespace pareprop::models
