#include "pareprop/models/hugging_face_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "pareprop/models/hugging_face.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/nearest.h"

namespace pareprop::models {
namespace {

using nlohmann::ordered_json;

const std::vector<std::string>& supported() {
  static const std::vector<std::string> types = {"vit",     "deit", "swin", "roberta-prelayernorm",
                                                 "roberta", "bert"};
  return types;
}

// Swin's norms outside of blocks have this eps in transformers, whatever config.json says.
constexpr double kSwinEps = 1e-5;

void expect_whole_gelu(const ConfigFile& config) {
  const std::string act = config.word("hidden_act").value_or("gelu");
  if (act != "gelu")
    config.fail("hidden_act", "networks here have gelu, not " + text::in_quotes(act));
}

double ratio(std::int64_t hidden, std::int64_t width) {
  return static_cast<double>(hidden) / static_cast<double>(std::max<std::int64_t>(width, 1));
}

void read_dropout(const ConfigFile& config, double usual, Overrides& sizes) {
  sizes.dropout = config.probability("hidden_dropout_prob").value_or(usual);
}

void note_other_dropout_of_attention(const ConfigFile& config, Architecture& found) {
  const double here = found.sizes.dropout.value_or(0.0);
  const double said = config.probability("attention_probs_dropout_prob")
                          .value_or(is_of_text(supported_type(config)) ? 0.1 : 0.0);
  if (said == here) return;
  found.notes.push_back(
      config.path() + ": attention_probs_dropout_prob is " + text::short_number(said, 6) +
      ": attention has the dropout of the rest here, " + text::short_number(here, 6));
}

const SizeKeys kEncoderKeys{.width = "hidden_size",
                            .depths = "num_hidden_layers",
                            .heads = "num_attention_heads",
                            .mlp_ratio = "intermediate_size",
                            .patch = "patch_size",
                            .window = "",
                            .image_size = "image_size",
                            .channels = "num_channels",
                            .classes = "id2label",
                            .vocabulary = "vocab_size",
                            .positions = "max_position_embeddings",
                            .qkv_bias = "qkv_bias"};
const SizeKeys kSwinKeys{.width = "embed_dim",
                         .depths = "depths",
                         .heads = "num_heads",
                         .mlp_ratio = "mlp_ratio",
                         .patch = "patch_size",
                         .window = "window_size",
                         .image_size = "image_size",
                         .channels = "num_channels",
                         .classes = "id2label",
                         .vocabulary = "",
                         .positions = "",
                         .qkv_bias = "qkv_bias"};

// What ViT, DeiT and RoBERTa have in common.
Overrides encoder_overrides(const ConfigFile& config) {
  Overrides sizes{.plain = true};
  sizes.width = config.whole("hidden_size").value_or(768);
  sizes.depths = {static_cast<int>(config.whole("num_hidden_layers").value_or(12))};
  sizes.heads = {static_cast<int>(config.whole("num_attention_heads").value_or(12))};
  sizes.mlp_ratio = ratio(config.whole("intermediate_size").value_or(3072), *sizes.width);
  sizes.norm_eps = config.number("layer_norm_eps").value_or(1e-12);
  sizes.no_qkv_bias = !config.flag("qkv_bias").value_or(true);
  return sizes;
}

Overrides vit_overrides(const ConfigFile& config) {
  Overrides sizes = encoder_overrides(config);
  sizes.image_size = config.side("image_size").value_or(224);
  sizes.patch = config.side("patch_size").value_or(16);
  sizes.channels = config.whole("num_channels").value_or(3);
  read_dropout(config, 0.0, sizes);
  return sizes;
}

Overrides swin_overrides(const ConfigFile& config) {
  if (config.flag("use_absolute_embeddings").value_or(false)) {
    config.fail("use_absolute_embeddings", "Swin has no absolute positions here; expected false");
  }
  Overrides sizes{.plain = true};
  sizes.width = config.whole("embed_dim").value_or(96);
  sizes.depths = config.wholes("depths").value_or(std::vector{2, 2, 6, 2});
  sizes.heads = config.wholes("num_heads").value_or(std::vector{3, 6, 12, 24});
  if (sizes.heads.size() != sizes.depths.size()) {
    config.fail("num_heads", "expected a number for each of the " +
                                 std::to_string(sizes.depths.size()) + " stages in depths");
  }
  sizes.mlp_ratio = config.number("mlp_ratio").value_or(4.0);
  sizes.window = config.whole("window_size").value_or(7);
  sizes.image_size = config.side("image_size").value_or(224);
  sizes.patch = config.side("patch_size").value_or(4);
  sizes.channels = config.whole("num_channels").value_or(3);
  sizes.no_qkv_bias = !config.flag("qkv_bias").value_or(true);
  sizes.norm_eps = config.number("layer_norm_eps").value_or(kSwinEps);
  if (sizes.norm_eps != kSwinEps) {
    config.fail("layer_norm_eps",
                "all norms of Swin have the same eps here, and some of "
                "transformers' have 1e-5 always; expected 1e-5");
  }
  read_dropout(config, 0.0, sizes);
  sizes.drop_path = config.probability("drop_path_rate").value_or(0.1);
  return sizes;
}

Overrides text_overrides(const ConfigFile& config, Encoder encoder) {
  const bool bert = encoder == Encoder::bert;
  Overrides sizes = encoder_overrides(config);
  sizes.encoder = encoder;
  sizes.vocabulary = config.whole("vocab_size").value_or(bert ? 30522 : 50265);
  sizes.positions = config.whole("max_position_embeddings").value_or(512);
  read_dropout(config, 0.1, sizes);
  const auto usual = RobertaConfig{.encoder = encoder}.padding();
  const auto padding = config.whole("pad_token_id").value_or(usual);
  if (padding != usual) {
    config.fail("pad_token_id", "expected " + std::to_string(usual) + ", as in " +
                                    (bert ? "BERT" : "RoBERTa") + "'s tokenizers; got " +
                                    std::to_string(padding));
  }
  const std::string positions = config.word("position_embedding_type").value_or("absolute");
  if (positions != "absolute") {
    config.fail("position_embedding_type",
                "networks here have absolute ones, got " + text::in_quotes(positions));
  }
  if (config.flag("is_decoder").value_or(false)) {
    config.fail("is_decoder", "networks here are encoders; expected false");
  }
  return sizes;
}

// transformers gives classes without names those.
bool are_numbers(const std::vector<std::string>& labels) {
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != "LABEL_" + std::to_string(i)) return false;
  }
  return true;
}

constexpr std::pair<Problem, const char*> kProblems[] = {
    {Problem::one_class, "single_label_classification"},
    {Problem::several_classes, "multi_label_classification"},
    {Problem::regression, "regression"}};

// As transformers understands a head whose config.json does not say it.
Problem usual_problem(std::int64_t classes) {
  return classes == 1 ? Problem::regression : Problem::one_class;
}

Problem read_problem(const ConfigFile& config, std::int64_t classes) {
  const auto said = config.word("problem_type");
  if (!said) return usual_problem(classes);
  for (const auto& [problem, word] : kProblems) {
    if (*said == word) return problem;
  }
  config.fail("problem_type",
              "expected single_label_classification, multi_label_classification or regression, "
              "got " +
                  text::in_quotes(*said));
}

void add_problem(ordered_json& config, Problem problem, std::int64_t classes) {
  for (const auto& [each, word] : kProblems) {
    if (each == problem && problem != usual_problem(classes)) config["problem_type"] = word;
  }
}

void read_labels(const ConfigFile& config, const Told& told, const std::string& weights,
                 Architecture& found) {
  found.sizes.classes = told.sizes.classes;
  found.problem = read_problem(config, told.sizes.classes.value_or(0));
  const auto labels = config.names_by_number("id2label");
  if (!labels) return;
  const auto classes = static_cast<std::int64_t>(labels->size());
  if (told.sizes.classes && *told.sizes.classes != classes) {
    config.fail("id2label", "it names " + std::to_string(classes) + " classes, but the head in " +
                                weights + " is for " + std::to_string(*told.sizes.classes) +
                                "; nothing was loaded");
  }
  if (told.has_head && !are_numbers(*labels)) found.labels = *labels;
}

ordered_json common_config(const std::string& type, const std::string& architecture) {
  return {{"architectures", {architecture}},
          {"model_type", type},
          {"dtype", "float32"},
          {"hidden_act", "gelu"}};
}

void add_classes(ordered_json& config, std::int64_t classes, const std::vector<std::string>& labels,
                 Problem problem) {
  ordered_json names = ordered_json::object(), numbers = ordered_json::object();
  for (std::int64_t i = 0; i < classes; ++i) {
    const std::string number = std::to_string(i);
    const std::string name =
        labels.empty() ? "LABEL_" + number : labels.at(static_cast<std::size_t>(i));
    names[number] = name;
    numbers[name] = i;
  }
  config["id2label"] = names;
  config["label2id"] = numbers;
  add_problem(config, problem, classes);
}

void add_image(ordered_json& config, const ImageShape& image, std::int64_t patch) {
  config["image_size"] = image.image_size;
  config["patch_size"] = patch;
  config["num_channels"] = image.channels;
}

void add_dropout(ordered_json& config, const DropRates& drop) {
  config["hidden_dropout_prob"] = drop.dropout;
  config["attention_probs_dropout_prob"] = drop.dropout;
}

void add_encoder(ordered_json& config, std::int64_t width, int depth, std::int64_t heads,
                 std::int64_t hidden, double eps) {
  config["hidden_size"] = width;
  config["num_hidden_layers"] = depth;
  config["num_attention_heads"] = heads;
  config["intermediate_size"] = hidden;
  config["layer_norm_eps"] = eps;
}

ordered_json config_of(const ViTConfig& c, const std::string& type) {
  const char* const architecture =
      c.distillation == Distillation::none    ? "ViTForImageClassification"
      : c.distillation == Distillation::token ? "DeiTForImageClassification"
                                              : "DeiTForImageClassificationWithTeacher";
  ordered_json config = common_config(type, architecture);
  add_encoder(config, c.width, c.depth, c.heads, c.mlp_hidden, c.eps);
  add_image(config, c.image, c.patch);
  config["qkv_bias"] = c.qkv_bias;
  add_dropout(config, c.drop);
  return config;
}

ordered_json config_of(const SwinConfig& c) {
  if (c.eps != kSwinEps) {
    throw std::invalid_argument("Hugging Face's Swin has norms of eps 1e-5, this network of " +
                                text::short_number(c.eps, 6) +
                                ": its scores would be others; use --names timm or own");
  }
  ordered_json config = common_config("swin", "SwinForImageClassification");
  config["embed_dim"] = c.width;
  config["depths"] = c.depths;
  config["num_heads"] = c.heads;
  config["window_size"] = c.window;
  config["mlp_ratio"] = c.mlp_ratio;
  config["layer_norm_eps"] = c.eps;
  add_image(config, c.image, c.patch);
  config["qkv_bias"] = c.qkv_bias;
  add_dropout(config, c.drop);
  config["drop_path_rate"] = c.drop.drop_path;
  return config;
}

ordered_json config_of(const RobertaConfig& c, const std::string& type) {
  if (!c.qkv_bias) {
    throw std::invalid_argument(
        "Hugging Face's RoBERTa has biases of queries, keys and values, which this network does "
        "not "
        "have; use --names own");
  }
  const std::string family = c.encoder == Encoder::norm_first ? "RobertaPreLayerNorm"
                             : c.encoder == Encoder::roberta  ? "Roberta"
                                                              : "Bert";
  ordered_json config =
      common_config(type, family + (c.classes > 0 ? "ForSequenceClassification" : "ForMaskedLM"));
  add_encoder(config, c.width, c.depth, c.heads, c.mlp_hidden, c.eps);
  config["vocab_size"] = c.vocabulary;
  config["max_position_embeddings"] = c.positions;
  config["type_vocab_size"] = 1;
  config["pad_token_id"] = c.padding();
  if (c.encoder != Encoder::bert) {
    config["bos_token_id"] = 0;
    config["eos_token_id"] = 2;
  }
  config["tie_word_embeddings"] = true;
  add_dropout(config, c.drop);
  return config;
}

const std::vector<float> kHalf = {0.5F, 0.5F, 0.5F};
const std::vector<float> kImageNetMean = {0.485F, 0.456F, 0.406F};
const std::vector<float> kImageNetDeviation = {0.229F, 0.224F, 0.225F};

// A number, or the side of {"height": ..., "width": ...} or {"shortest_edge": ...}.
std::optional<double> side_of(const ConfigFile& config, const std::string& key) {
  try {
    if (const auto number = config.number(key)) return number;
  } catch (const std::invalid_argument&) {
    const ConfigFile sides = config.part(key);
    for (const char* name : {"shortest_edge", "height"}) {
      if (const auto number = sides.number(name)) return number;
    }
  }
  return std::nullopt;
}

void expect_of_colours(const ConfigFile& config, const std::string& key, std::size_t count) {
  if (count != 1 && count != 3) config.fail(key, "expected one number, or one for each colour");
}

}  // namespace

std::string supported_type(const ConfigFile& config) {
  const std::string type = config.word("model_type").value_or("");
  const auto& known = supported();
  if (std::find(known.begin(), known.end(), type) != known.end()) return type;
  std::string all;
  for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
  if (type.empty()) {
    throw std::invalid_argument(config.path() +
                                ": the key 'model_type' is missing; expected one of " + all +
                                ", or timm's 'architecture'");
  }
  const std::string near = text::nearest(type, known);
  const auto classes = config.words("architectures");
  const std::string title = classes && !classes->empty() ? " (" + classes->front() + ")" : "";
  throw std::invalid_argument(config.path() + ": the architecture " +
                              text::printable(type + title) + " is not supported; " +
                              (near.empty()
                                   ? "expected one of " + all
                                   : "the nearest that is: " + near + " (all: " + all + ")"));
}

Architecture read_hugging_face(const ConfigFile& config, const Told& told,
                               const std::string& weights) {
  const std::string type = supported_type(config);
  expect_whole_gelu(config);
  Architecture found;
  SizeKeys keys = kEncoderKeys;
  if (type == "swin") {
    found.sizes = swin_overrides(config);
    keys = kSwinKeys;
  } else if (is_of_text(type)) {
    found.sizes = text_overrides(config, encoder_of(type));
  } else {
    found.sizes = vit_overrides(config);
    found.sizes.distillation = told.sizes.distillation;
    if ((type == "deit") != (told.sizes.distillation != Distillation::none)) {
      config.fail("model_type", type + " contradicts the weights: " + weights +
                                    (type == "deit" ? " has no" : " has a") +
                                    " distillation token; nothing was loaded");
    }
  }
  check_agreement(config.path(), found.sizes, keys, weights, told.sizes);
  note_other_dropout_of_attention(config, found);
  if (!is_of_text(type) || told.sizes.classes) read_labels(config, told, weights, found);
  found.model = base_of(told).model;
  return found;
}

std::optional<ImageInput> read_preprocessor(const std::filesystem::path& folder,
                                            const std::string& model_type) {
  if (is_of_text(model_type)) return std::nullopt;
  ImageInput input = model_type == "vit" ? ImageInput{kHalf, kHalf}
                                         : ImageInput{kImageNetMean, kImageNetDeviation};
  const auto path = folder / "preprocessor_config.json";
  if (!std::filesystem::exists(path)) return input;
  const ConfigFile config(path);
  if (!config.flag("do_normalize").value_or(true)) {
    input.mean = {0.0F};
    input.deviation = {1.0F};
  } else {
    input.mean = config.numbers("image_mean").value_or(input.mean);
    input.deviation = config.numbers("image_std").value_or(input.deviation);
    expect_of_colours(config, "image_mean", input.mean.size());
    expect_of_colours(config, "image_std", input.deviation.size());
    const auto bad = [](float each) { return !(each > 0.0F); };
    if (std::any_of(input.deviation.begin(), input.deviation.end(), bad)) {
      config.fail("image_std", "expected more than 0");
    }
  }
  const auto crop = side_of(config, "crop_size"), size = side_of(config, "size");
  if (config.flag("do_center_crop").value_or(false) && crop && size && *crop > 0.0 &&
      *size >= *crop) {
    // Whole pixels, unless the exact share is there too.
    input.centre_share = config.number("crop_pct").value_or(*crop / *size);
    if (!(input.centre_share > 0.0 && input.centre_share <= 1.0)) {
      config.fail("crop_pct", "expected more than 0 and at most 1");
    }
  }
  return input;
}

std::string hugging_face_config(const Model& model, const std::vector<std::string>& labels,
                                Problem problem) {
  const std::string type = hugging_face_type(model);
  ordered_json config;
  if (const auto* vit = dynamic_cast<const PlainViT*>(&model)) {
    config = config_of(vit->config(), type);
  } else if (const auto* swin = dynamic_cast<const PlainSwin*>(&model)) {
    config = config_of(swin->config());
  } else {
    const RobertaConfig& text = dynamic_cast<const PlainRoberta&>(model).config();
    config = config_of(text, type);
    if (text.classes > 0) add_classes(config, text.classes, labels, problem);
  }
  if (const auto* image = dynamic_cast<const ImageModel*>(&model)) {
    add_classes(config, image->shape().classes, labels, problem);
  }
  return config.dump(2) + "\n";
}

std::string hugging_face_preprocessor(const Model& model, const ImageInput& input) {
  const auto& shape = dynamic_cast<const ImageModel&>(model).shape();
  const auto whole = std::llround(static_cast<double>(shape.image_size) / input.centre_share);
  const auto square = [](std::int64_t side) {
    return ordered_json{{"height", side}, {"width", side}};
  };
  // DeiT's processor is ViT's with a part from the middle.
  const bool crops = whole != shape.image_size;
  ordered_json config = {
      {"image_processor_type", crops ? "DeiTImageProcessor" : "ViTImageProcessor"},
      {"do_resize", true},
      {"size", square(whole)},
      {"resample", 3}};
  if (crops) {
    config["do_center_crop"] = true;
    config["crop_size"] = square(shape.image_size);
    config["crop_pct"] = input.centre_share;
  }
  config["do_rescale"] = true;
  config["rescale_factor"] = 1.0 / 255.0;
  config["do_normalize"] = true;
  const auto each = [&](std::vector<float> values) {
    if (values.size() == 1) values.resize(static_cast<std::size_t>(shape.channels), values[0]);
    return values;
  };
  config["image_mean"] = each(input.mean);
  config["image_std"] = each(input.deviation);
  if (shape.channels == 3) config["do_convert_rgb"] = true;
  return config.dump(2) + "\n";
}

}  // namespace pareprop::models
