#include "pareprop/train/train_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <type_traits>

#include "pareprop/graph/policy.h"
#include "pareprop/io/json.h"
#include "pareprop/ops/precision.h"
#include "pareprop/train/config_fields.h"
#include "pareprop/train/learning_rate.h"

namespace pareprop::train {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse(std::string_view key, const std::string& expected, std::string_view got) {
  throw std::invalid_argument(std::string(key) + ": expected " + expected + ", got '" +
                              std::string(got) + "'");
}

template <typename Number>
Number number_of(std::string_view key, std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
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
template <typename Plain>
requires std::is_arithmetic_v<Plain> ordered_json json_of(const Plain& value) { return value; }

bool is_value(const nlohmann::json& value) {
  if (!value.is_array()) return !value.is_object();
  return std::all_of(value.begin(), value.end(), [](const auto& part) { return part.is_number(); });
}

// As set_field() reads it. REQUIRES: is_value().
std::string text_of(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& part : value) text += (text.empty() ? "" : ",") + part.dump();
  return text;
}

// Changes of single characters that make one word the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string nearest_key(std::string_view key) {
  std::string nearest;
  std::size_t least = std::string_view::npos;
  visit_fields(static_cast<const TrainConfig&>(TrainConfig{}),
               [&](std::string_view known, std::string_view, const auto&) {
                 const std::size_t changes = distance(key, known);
                 if (changes < least) {
                   least = changes;
                   nearest = known;
                 }
               });
  return nearest;
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
  expect(found,
         "unknown key '" + std::string(key) + "'; the nearest is '" + nearest_key(key) + "'");
}

void apply_json(TrainConfig& config, std::string_view json, const std::string& source) {
  const auto parsed = io::parse_json(json, source);
  expect(parsed.is_object(), source + ": expected a JSON object of keys and values");
  TrainConfig changed = config;
  for (const auto& [key, value] : parsed.items()) {
    expect(is_value(value), source + ": " + key + ": expected a value or a list of numbers");
    try {
      set_field(changed, key, value.is_null() ? default_text(key) : text_of(value));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(source + ": " + error.what());
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

void check(const TrainConfig& c) {
  const auto at_least = [](const char* key, auto least, auto value) {
    expect(value >= least, std::string(key) + ": expected " + std::to_string(least) +
                               " or more, got " + std::to_string(value));
  };
  const auto share = [](const char* key, double value, bool one = false) {
    expect(value >= 0.0 && (value < 1.0 || (one && value == 1.0)),
           std::string(key) + ": expected 0 or more and " + (one ? "at most" : "less than") +
               " 1, got " + std::to_string(value));
  };
  at_least("batch", std::int64_t{1}, c.batch);
  at_least("accumulate", std::int64_t{1}, c.accumulate);
  at_least("steps", std::int64_t{0}, c.steps);
  expect(c.steps > 0 || c.epochs > 0.0,
         "epochs: expected more than 0 where steps is 0, got " + std::to_string(c.epochs));
  at_least("vocabulary", std::int64_t{1}, c.vocabulary);
  at_least("workers", 0, c.workers);
  at_least("keep", 1, c.keep);
  at_least("save_every", std::int64_t{0}, c.save_every.value_or(0));
  expect(c.save_minutes > 0.0,
         "save_minutes: expected more than 0, got " + std::to_string(c.save_minutes));
  at_least("eval_every", std::int64_t{0}, c.eval_every);
  at_least("early_stop", std::int64_t{0}, c.early_stop);
  at_least("log_every", std::int64_t{1}, c.log_every);
  at_least("trace", std::int64_t{0}, c.trace);
  at_least("time_limit", 0.0, c.time_limit);
  at_least("initial_std", 0.0, c.initial_std);
  at_least("clip", 0.0, c.clip);
  expect(c.timeout > 0.0, "timeout: expected more than 0 seconds");
  share("warmup", c.warmup, true);
  share("ema", c.ema);
  share("dropout", c.dropout.value_or(0.0));
  share("drop_path", c.drop_path.value_or(0.0));
  expect(c.augment == "auto" || c.augment == "none",
         "augment: expected auto or none, got '" + c.augment + "'");
  expect(c.streams == "auto" || c.streams == "float" || c.streams == "exact",
         "streams: expected auto, float or exact, got '" + c.streams + "'");
  expect(!c.out.empty(), "out: expected a folder");
  parse_mode(c.mode);
  parse_precision(c.precision);
  decay_of(c.decay);
}

Arithmetic arithmetic_of(const TrainConfig& config) {
  const bool drifts = config.streams == "auto" && config.precision == "bf16";
  return config.exact || drifts || config.streams == "exact" ? Arithmetic::exact
                                                             : Arithmetic::floating;
}

models::Overrides overrides_of(const TrainConfig& config) {
  return {.depths = config.depth,
          .width = config.width,
          .image_size = config.image_size,
          .length = config.seq_len,
          .dropout = config.dropout,
          .drop_path = config.drop_path,
          .plain = config.plain};
}

}  // namespace pareprop::train
