#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/models/overrides.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop::train {

// Everything that a training run follows from. The same names are keys of a configuration file and,
// with dashes, flags of the command line; what each means is said by fields().
struct TrainConfig {
  // The network
  std::string model = "vit_tiny";
  bool plain = false;
  std::vector<int> depth = {};
  std::optional<std::int64_t> width = std::nullopt;
  std::optional<std::int64_t> image_size = std::nullopt;
  std::optional<std::int64_t> seq_len = std::nullopt;
  std::optional<double> dropout = std::nullopt;
  std::optional<double> drop_path = std::nullopt;
  double initial_std = 0.0;
  std::string weights = {};

  // The data
  std::string data = "digits";
  std::string tokenizer = {};
  std::int64_t vocabulary = 4096;
  std::string augment = "auto";
  double mixup = 0.0;
  double cutmix = 0.0;
  double mix_probability = 1.0;
  double erase = 0.0;
  double label_smoothing = 0.0;
  int workers = 1;
  bool strict = false;

  // How it is trained
  std::string mode = "auto";
  std::string budget = {};
  bool force = false;
  std::string precision = "fp32";
  std::string streams = "auto";
  bool exact = false;
  std::int64_t batch = 64;
  std::int64_t accumulate = 1;
  std::int64_t steps = 0;
  double epochs = 10.0;
  std::uint64_t seed = 0;

  // The optimizer
  double learning_rate = 1e-3;
  double last_learning_rate = 0.0;
  double warmup = 0.05;
  std::string decay = "cosine";
  double weight_decay = 0.05;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip = 1.0;
  double ema = 0.0;

  // What is kept and said
  std::string out = "run";
  std::optional<std::int64_t> save_every = std::nullopt;
  double save_minutes = 10.0;
  int keep = 3;
  std::string resume = {};
  std::int64_t eval_every = 0;
  std::int64_t early_stop = 0;
  std::int64_t log_every = 10;
  std::int64_t trace = 0;
  double time_limit = 0.0;
  double timeout = 600.0;
};

// One value of a configuration, as text.
struct ConfigField {
  std::string key;    // "learning_rate"
  std::string help;   // what it is
  std::string value;  // empty: not given
  bool is_switch;     // true or false
};
std::vector<ConfigField> fields(const TrainConfig& config);

// Gives a field the value that `text` says. Throws std::invalid_argument for a key that there is
// not, naming the nearest, and for a value that the field cannot have.
void set_field(TrainConfig& config, std::string_view key, std::string_view text);

// A JSON object with some of the fields; those it does not name stay. `source` begins messages.
// Throws std::invalid_argument as set_field() does, and when the text is no JSON object; nothing is
// changed then.
void apply_json(TrainConfig& config, std::string_view json, const std::string& source);

// "run.json: line 3, column 5": where such a text has a key; `source` alone where that is not
// known.
std::string place_in_json(std::string_view json, std::string_view key, const std::string& source);

// All fields, in their order, those that are not given as null. What apply_json() reads.
std::string to_json(const TrainConfig& config);

// Throws std::invalid_argument for the first value that is out of its range.
void check(const TrainConfig& config);

// Fixed point where `exact` or `streams` ask for it; and, unless `streams` says float, with bf16
// branches: one rounding of theirs that falls otherwise is 1/256 of a value, and a network of 6
// blocks was seen to recover streams that were off by an eighth.
Arithmetic arithmetic_of(const TrainConfig& config);

// What the fields of the network ask of a named one.
models::Overrides overrides_of(const TrainConfig& config);

}  // namespace pareprop::train
