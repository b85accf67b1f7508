#include "pareprop/train/train_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "pareprop/data/prefetch.h"
#include "pareprop/device/choose_device.h"
#include "pareprop/io/json.h"
#include "pareprop/ops/precision.h"
#include "pareprop/text/escape.h"
#include "pareprop/text/nearest.h"
#include "pareprop/text/units.h"
#include "pareprop/text/utf8.h"
#include "pareprop/train/config_fields.h"

namespace pareprop::train {
namespace {

using nlohmann::ordered_json;

template <typename Plain>
requires std::is_arithmetic_v<Plain> ordered_json json_of(const Plain& value) { return value; }

[[noreturn]] void refuse(std::string_view key, const std::string& expected, std::string_view got) {
  throw FieldError(std::string(key), "expected " + expected + ", got '" + std::string(got) + "'");
}

template <typename Number>
Number number_of(std::string_view key, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) {
    const std::string most = json_of(std::numeric_limits<Number>::max()).dump();
    refuse(key,
           std::is_integral_v<Number> ? "a number of at most " + most
                                      : "a number that fits into 64 bits",
           text);
  }
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(key, std::is_integral_v<Number> ? "a whole number" : "a number", text);
  }
  if constexpr (!std::is_integral_v<Number>) {
    if (!std::isfinite(value)) refuse(key, "a finite number", text);
  }
  return value;
}

void read(std::string_view, std::string_view text, std::string& value) { value = text; }

void read(std::string_view key, std::string_view text, bool& value) {
  if (text != "true" && text != "false") refuse(key, "true or false", text);
  value = text == "true";
}

template <typename Number>
requires std::is_arithmetic_v<Number>
void read(std::string_view key, std::string_view text, Number& value) {
  value = number_of<Number>(key, text);
}

template <typename Number>
void read(std::string_view key, std::string_view text, std::optional<Number>& value) {
  value = text.empty() ? std::nullopt : std::optional(number_of<Number>(key, text));
}

void read(std::string_view key, std::string_view text, std::vector<int>& value) {
  std::vector<int> numbers;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    numbers.push_back(number_of<int>(key, text.substr(0, comma)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  value = std::move(numbers);
}

ordered_json json_of(const std::vector<int>& value) {
  return value.empty() ? ordered_json() : ordered_json(value);
}
template <typename Number>
ordered_json json_of(const std::optional<Number>& value) {
  return value ? ordered_json(*value) : ordered_json();
}
ordered_json json_of(const std::string& value) {
  return value.empty() ? ordered_json() : ordered_json(value);
}

bool is_list_of_numbers(const nlohmann::json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const auto& part) { return part.is_number(); });
}

// As set_field() reads it. REQUIRES: a list is one of numbers.
std::string text_of(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& part : value) text += (text.empty() ? "" : ",") + part.dump();
  return text;
}

std::string unknown_key(std::string_view key) {
  std::vector<std::string> known;
  visit_fields(static_cast<const TrainConfig&>(TrainConfig{}),
               [&](const char* name, const char*, const auto&) { known.emplace_back(name); });
  const std::string near = text::nearest(key, known);
  return "unknown key '" + std::string(key) + "'" +
         (near.empty() ? "" : "; the nearest is '" + near + "'");
}

std::string default_text(std::string_view key) {
  for (ConfigField& field : fields({})) {
    if (field.key == key) return std::move(field.value);
  }
  return "";
}

void expect(bool good, const std::string& what) {
  if (!good) throw std::invalid_argument(what);
}

void expect_field(bool good, const char* key, const std::string& why) {
  if (!good) throw FieldError(key, why);
}

// Throws FieldError. A key that nobody knows passes: set_field() names its nearest.
void expect_shape(const std::string& key, const nlohmann::json& value) {
  bool takes_list = false;
  visit_fields(static_cast<const TrainConfig&>(TrainConfig{}),
               [&](const char* name, const char*, const auto& field) {
                 if (name == key) {
                   takes_list = std::is_same_v<std::decay_t<decltype(field)>, std::vector<int>>;
                 }
               });
  expect_field(!value.is_structured() || (takes_list && is_list_of_numbers(value)), key.c_str(),
               takes_list ? "expected a number or a list of numbers"
                          : "expected one value, not a list or an object");
}

}  // namespace

std::vector<ConfigField> fields(const TrainConfig& config) {
  std::vector<ConfigField> all;
  visit_fields(config, [&](const char* key, const char* help, const auto& value) {
    all.push_back({.key = key,
                   .help = help,
                   .value = text_of(json_of(value)),
                   .is_switch = std::is_same_v<std::decay_t<decltype(value)>, bool>});
  });
  return all;
}

void set_field(TrainConfig& config, std::string_view key, std::string_view text) {
  bool found = false;
  visit_fields(config, [&](std::string_view known, const char*, auto& value) {
    if (known != key) return;
    read(key, text, value);
    found = true;
  });
  expect(found, unknown_key(key));
}

std::string place_in_json(std::string_view json, std::string_view key, const std::string& source) {
  const std::string place = io::place_of_key(json, key);
  return place.empty() ? source : source + ": " + place;
}

void apply_json(TrainConfig& config, std::string_view json, const std::string& source) {
  const auto parsed = io::parse_json(json, source);
  expect(parsed.is_object(), source + ": expected a JSON object of keys and values");
  TrainConfig changed = config;
  for (const auto& [key, value] : parsed.items()) {
    try {
      expect_shape(key, value);
      set_field(changed, key, value.is_null() ? default_text(key) : text_of(value));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(place_in_json(json, key, source) + ": " + error.what());
    }
  }
  config = std::move(changed);
}

std::string to_json(const TrainConfig& config) {
  ordered_json object = ordered_json::object();
  visit_fields(config, [&](const char* key, const char*, const auto& value) {
    object[key] = json_of(value);
  });
  return object.dump(2) + "\n";
}

namespace {

template <typename Number>
void between(const char* key, Number least, Number most, Number value) {
  expect_field(value >= least && value <= most, key,
               "expected " + text_of(least) + " to " + text_of(most) + ", got " + text_of(value));
}

void share(const char* key, double value, bool one = false) {
  expect_field(value >= 0.0 && (value < 1.0 || (one && value == 1.0)), key,
               std::string("expected 0 or more and ") + (one ? "at most" : "less than") +
                   " 1, got " + text_of(value));
}

// What `parse` makes of the value.
template <typename Value, typename Parse>
auto parsed(const char* key, const Value& value, Parse parse) {
  try {
    return parse(value);
  } catch (const std::invalid_argument& error) {
    throw FieldError(key, error.what());
  }
}

// More than anybody trains with, and little enough that sums and products of them do not overflow.
constexpr std::int64_t kMostSamples = std::int64_t{1} << 20;
constexpr std::int64_t kMostSteps = 1'000'000'000'000;
constexpr double kMostEpochs = 1e6;
constexpr int kMostKept = 1'000'000;
constexpr double kLongest = 1e9;  // minutes
// Seconds. To libtorch 0 milliseconds are no time-out, and an int must hold them all.
constexpr double kShortestTimeout = 0.1, kLongestTimeout = 1e6;

void check_optimizer(const TrainConfig& c) {
  constexpr double kLargestFloat = 1e38;
  expect_field(c.learning_rate > 0.0 && c.learning_rate <= kLargestFloat, "learning_rate",
               "expected more than 0 and at most " + text_of(kLargestFloat) + ", got " +
                   text_of(c.learning_rate));
  expect_field(c.last_learning_rate >= 0.0 && c.last_learning_rate <= c.learning_rate,
               "last_learning_rate",
               "expected 0 to the peak learning rate, " + text_of(c.learning_rate) + ", got " +
                   text_of(c.last_learning_rate));
  share("warmup", c.warmup, true);
  between("weight_decay", 0.0, kLongest, c.weight_decay);
  share("beta1", c.beta1);
  share("beta2", c.beta2);
  share("momentum", c.momentum);
  expect_field(c.eps > 0.0 && c.eps <= 1.0, "eps",
               "expected more than 0 and at most 1, such as 1e-8, got " + text_of(c.eps));
  between("clip", 0.0, kLongest, c.clip);
  expect_field(c.layer_decay > 0.0 && c.layer_decay <= 1.0, "layer_decay",
               "expected more than 0 and at most 1, such as 0.75, got " + text_of(c.layer_decay));
  between("head_steps", std::int64_t{0}, kMostSteps, c.head_steps);
  share("ema", c.ema);
}

models::Distillation distillation_of(const std::string& word) {
  return word.empty() ? models::Distillation::none : models::parse_distillation(word);
}

std::optional<models::Encoder> encoder_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  return models::parse_encoder(word);
}

std::optional<models::Ending> ending_of(const std::string& word) {
  if (word.empty()) return std::nullopt;
  return models::parse_ending(word);
}

// Which of these sizes suit the network is for it to say.
void check_network(const TrainConfig& c) {
  const auto size = [](const char* key, std::int64_t least, std::int64_t most, std::int64_t got) {
    expect_field(got >= least, key, "expected " + text_of(least) + " or more, got " + text_of(got));
    expect_field(got <= most, key, "expected at most " + text_of(most) + ", got " + text_of(got));
  };
  for (const int depth : c.depth) size("depth", 0, models::kMostBlocks, depth);
  size("width", 1, models::kMostWidth, c.width.value_or(1));
  size("image_size", 1, models::kMostImageSize, c.image_size.value_or(1));
  size("seq_len", 1, models::kMostTokens, c.seq_len.value_or(1));
  for (const int heads : c.heads) size("heads", 1, models::kMostWidth, heads);
  expect_field(!c.mlp_ratio || (*c.mlp_ratio > 0.0 && *c.mlp_ratio <= models::kMostMlpRatio),
               "mlp_ratio",
               "expected more than 0 and at most " + text_of(models::kMostMlpRatio) + ", got " +
                   text_of(c.mlp_ratio.value_or(0.0)));
  size("patch", 1, models::kMostImageSize, c.patch.value_or(1));
  size("window", 1, models::kMostImageSize, c.window.value_or(1));
  size("positions", 3, models::kMostTokens + 2, c.positions.value_or(3));
  size("embeddings", 1, models::kMostVocabulary, c.embeddings.value_or(1));
  expect_field(
      !c.norm_eps || (*c.norm_eps > 0.0 && *c.norm_eps <= 1.0), "norm_eps",
      "expected more than 0 and at most 1, such as 1e-6, got " + text_of(c.norm_eps.value_or(0.0)));
  parsed("distillation", c.distillation, distillation_of);
  expect_field(parsed("encoder", c.encoder, encoder_of) != models::Encoder::bert, "encoder",
               "BERT's tokenizers (WordPiece) are not read here, so it cannot be trained; expected "
               "norm-first or roberta");
  parsed("ending", c.ending, ending_of);
  share("dropout", c.dropout.value_or(0.0));
  share("drop_path", c.drop_path.value_or(0.0));
  between("initial_std", 0.0, kLongest, c.initial_std);
}

void check_data(const TrainConfig& c) {
  between("vocabulary", std::int64_t{1}, models::kMostVocabulary, c.vocabulary);
  expect_field(c.augment == "auto" || c.augment == "none", "augment",
               "expected auto or none, got '" + c.augment + "'");
  between("mixup", 0.0, kLongest, c.mixup);
  between("cutmix", 0.0, kLongest, c.cutmix);
  share("mix_probability", c.mix_probability, true);
  share("erase", c.erase, true);
  share("label_smoothing", c.label_smoothing);
  between("workers", 0, data::kMostWorkers, c.workers);
}

}  // namespace

TrainChoices check(const TrainConfig& c) {
  between("batch", std::int64_t{1}, kMostSamples, c.batch);
  between("accumulate", std::int64_t{1}, kMostSamples, c.accumulate);
  between("steps", std::int64_t{0}, kMostSteps, c.steps);
  between("epochs", 0.0, kMostEpochs, c.epochs);
  expect_field(c.steps > 0 || c.epochs > 0.0, "epochs",
               "expected more than 0 if the number of steps is 0, got " + text_of(c.epochs));
  check_network(c);
  check_data(c);
  check_optimizer(c);
  between("keep", 1, kMostKept, c.keep);
  between("save_every", std::int64_t{0}, kMostSteps, c.save_every.value_or(0));
  expect_field(
      c.save_minutes > 0.0 && c.save_minutes <= kLongest, "save_minutes",
      "expected more than 0 and at most " + text_of(kLongest) + ", got " + text_of(c.save_minutes));
  between("eval_every", std::int64_t{0}, kMostSteps, c.eval_every);
  between("early_stop", std::int64_t{0}, kMostSteps, c.early_stop);
  between("log_every", std::int64_t{1}, kMostSteps, c.log_every);
  between("trace", std::int64_t{0}, kMostSteps, c.trace);
  between("time_limit", 0.0, kLongest, c.time_limit);
  between("timeout", kShortestTimeout, kLongestTimeout, c.timeout);
  expect_field(c.streams == "auto" || c.streams == "float" || c.streams == "exact", "streams",
               "expected auto, float or exact, got '" + c.streams + "'");
  expect_field(!c.out.empty(), "out", "expected a folder");
  // What is written of it later is JSON.
  for (const ConfigField& field : fields(c)) {
    expect_field(text::first_ill_formed(field.value) == field.value.size(), field.key.c_str(),
                 "expected text in UTF-8, got " + text::in_quotes(field.value) +
                     "; rename the file or folder, or make a link to it");
  }
  return choices_of(c);
}

namespace {

optim::OptimizerOptions optimizer_of(const TrainConfig& c) {
  const auto state = parsed("optimizer_state", c.optimizer_state, optim::parse_state_kind);
  expect_field(state == optim::StateKind::fp32 || c.precision != "fp64", "optimizer_state",
               "expected fp32, because --precision is fp64, got " + c.optimizer_state);
  const auto kind = parsed("optimizer", c.optimizer, optim::parse_optimizer_kind);
  parsed("optimizer_state", state, [&](optim::StateKind own) { optim::check_suits(kind, own); });
  return {.kind = kind,
          .state = state,
          .beta1 = c.beta1,
          .beta2 = c.beta2,
          .eps = c.eps,
          .momentum = c.momentum,
          .weight_decay = c.weight_decay,
          .seed = c.seed};
}

}  // namespace

Allowed parse_allowed(std::string_view text) {
  Allowed allowed;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    if (word == "lean-state") {
      allowed.lean_state = true;
    } else if (word == "update-inside") {
      allowed.update_inside = true;
    } else {
      throw std::invalid_argument(
          "expected lean-state, update-inside, or both separated by a "
          "comma, got '" +
          std::string(word) + "'");
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return allowed;
}

TrainChoices choices_of(const TrainConfig& c) {
  TrainChoices choices{.mode = parsed("mode", c.mode, parse_mode),
                       .numerics = parsed("precision", c, numerics_of),
                       .decay = parsed("decay", c.decay, decay_of),
                       .optimizer = optimizer_of(c)};
  expect_field(c.update == "after" || c.update == "inside", "update",
               "expected after or inside, got '" + c.update + "'");
  if (c.update == "inside") choices.update = Update::inside;
  expect_field(choices.update == Update::after || c.accumulate == 1, "update",
               "expected after, because --accumulate is " + text_of(c.accumulate) +
                   ": between micro-batches the gradients of all weights have to be kept; use a "
                   "larger --batch and --mode reprop instead");
  choices.shard = parsed("shard", c.shard, distributed::parse_shard);
  if (!c.budget.empty()) choices.budget = parsed("budget", c.budget, text::parse_byte_size);
  choices.allowed = parsed("allow", c.allow, parse_allowed);
  expect_field(!choices.allowed.any() || choices.mode == Mode::automatic, "allow",
               "expected none, because --mode is " + c.mode + ": only --mode auto searches");
  expect_field(!choices.allowed.update_inside || c.accumulate == 1, "allow",
               "expected no update-inside, because --accumulate is " + text_of(c.accumulate));
  return choices;
}

std::string flag_name(std::string_view key) {
  std::string flag = "--" + std::string(key);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

c10::Device device_of(const TrainConfig& config, int local_rank) {
  return parsed("device", config.device,
                [&](const std::string& spec) { return choose_device(spec, local_rank); });
}

StackOptions numerics_of(const TrainConfig& config) {
  const Precision precision = parse_precision(config.precision);
  const bool drifts = config.streams == "auto" && precision == Precision::bf16;
  const bool exact = config.exact || drifts || config.streams == "exact";
  return {.precision = precision, .arithmetic = exact ? Arithmetic::exact : Arithmetic::floating};
}

std::string model_of(const TrainConfig& config) {
  return config.model.empty() ? kUsualModel : config.model;
}

models::Overrides overrides_of(const TrainConfig& config) {
  return {.depths = config.depth,
          .width = config.width,
          .heads = config.heads,
          .mlp_ratio = config.mlp_ratio,
          .patch = config.patch,
          .window = config.window,
          .image_size = config.image_size,
          .length = config.seq_len,
          .positions = config.positions,
          .norm_eps = config.norm_eps,
          .no_qkv_bias = config.no_qkv_bias,
          .distillation = distillation_of(config.distillation),
          .encoder = encoder_of(config.encoder),
          .dropout = config.dropout,
          .drop_path = config.drop_path,
          .plain = config.plain,
          .ending = ending_of(config.ending),
          .class_token = config.class_token};
}

namespace {

struct NetworkField {
  const char* key;
  bool adapts = false;  // weights of another value are adapted, or it is none of theirs
};
constexpr NetworkField kNetworkFields[] = {
    {"model"},           {"plain"},        {"depth"},
    {"width"},           {"heads"},        {"mlp_ratio"},
    {"patch"},           {"window", true}, {"image_size", true},
    {"positions", true}, {"embeddings"},   {"norm_eps"},
    {"no_qkv_bias"},     {"distillation"}, {"encoder"},
    {"ending"},          {"class_token"},  {"dropout", true},
    {"drop_path", true}};

// As text; empty: not given.
std::string value_of(const TrainConfig& config, std::string_view key) {
  for (ConfigField& field : fields(config)) {
    if (field.key == key) return std::move(field.value);
  }
  return "";
}

template <typename Differs>
TrainConfig filled_in(TrainConfig config, const TrainConfig& network, const Differs& differs) {
  for (const NetworkField& field : kNetworkFields) {
    const std::string given = value_of(config, field.key), theirs = value_of(network, field.key);
    if (given == value_of({}, field.key)) {
      set_field(config, field.key, theirs);
    } else if (given != theirs) {
      differs(field, given, theirs);
    }
  }
  return config;
}

}  // namespace

TrainConfig with_network(TrainConfig config, const TrainConfig& network) {
  return filled_in(std::move(config), network,
                   [](const NetworkField&, const std::string&, const std::string&) {});
}

TrainConfig with_network_of_weights(TrainConfig config, const TrainConfig& network,
                                    const std::string& source) {
  const auto refuse_other = [&](const NetworkField& field, const std::string& given,
                                const std::string& theirs) {
    if (field.adapts || theirs.empty()) return;
    if (std::string_view(field.key) == "plain") {
      throw FieldError(field.key, "the weights in " + source + " are of a reversible network");
    }
    throw FieldError(field.key, "got " + given + ", but the weights in " + source + " have " +
                                    theirs + "; leave it out, or give other weights");
  };
  return filled_in(std::move(config), network, refuse_other);
}

}  // namespace pareprop::train
