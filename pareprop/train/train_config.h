#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pareprop/distributed/shard.h"
#include "pareprop/graph/policy.h"
#include "pareprop/models/overrides.h"
#include "pareprop/optim/make_optimizer.h"
#include "pareprop/reversible/stack_options.h"
#include "pareprop/train/learning_rate.h"

namespace pareprop::train {

inline constexpr const char* kUsualModel = "vit_tiny";

// Everything that a training run follows from. The same names are keys of a configuration file and,
// with dashes, flags of the command line; what each means is said by fields().
struct TrainConfig {
  // The network
  std::string model = {};  // none: that of the weights, or kUsualModel
  bool plain = false;
  std::vector<int> depth = {};
  std::optional<std::int64_t> width = std::nullopt;
  std::vector<int> heads = {};
  std::optional<double> mlp_ratio = std::nullopt;
  std::optional<std::int64_t> patch = std::nullopt;
  std::optional<std::int64_t> window = std::nullopt;
  std::optional<std::int64_t> image_size = std::nullopt;
  std::optional<std::int64_t> seq_len = std::nullopt;
  std::optional<std::int64_t> positions = std::nullopt;
  std::optional<std::int64_t> embeddings = std::nullopt;
  std::optional<double> norm_eps = std::nullopt;
  bool no_qkv_bias = false;
  std::string distillation = {};
  std::string encoder = {};
  std::string ending = {};
  bool class_token = false;
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
  std::string allow = {};
  bool force = false;
  std::string device = "auto";
  std::string precision = "fp32";
  std::string streams = "auto";
  bool exact = false;
  std::int64_t batch = 64;
  std::int64_t accumulate = 1;
  std::int64_t steps = 0;
  double epochs = 10.0;
  std::uint64_t seed = 0;

  // The optimizer
  std::string optimizer = "adamw";
  std::string optimizer_state = "fp32";
  double momentum = 0.9;
  double learning_rate = 1e-3;
  double last_learning_rate = 0.0;
  double warmup = 0.05;
  std::string decay = "cosine";
  double weight_decay = 0.05;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip = 1.0;
  std::string update = "after";
  std::string shard = "none";
  double ema = 0.0;

  // What is trained of a network that has weights
  std::string freeze = {};
  double layer_decay = 1.0;
  std::int64_t head_steps = 0;

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

// A field has a value that it cannot have. what() names its key, as it is in a configuration file;
// on the command line the same field is flag_name(key()).
class FieldError : public std::invalid_argument {
 public:
  FieldError(std::string key, std::string why)
      : std::invalid_argument(key + ": " + why), key_(std::move(key)), why_(std::move(why)) {}

  const std::string& key() const { return key_; }
  const std::string& why() const { return why_; }

 private:
  std::string key_, why_;
};

// "--learning-rate" of "learning_rate".
std::string flag_name(std::string_view key);

// When the optimizer steps: after the backward pass, or inside it, where the gradients of two
// blocks are alive instead of all (Note [Updates inside the backward pass]).
enum class Update { after, inside };

// What the search for the fastest plan may change, beyond what only rounds sums differently.
struct Allowed {
  bool lean_state = false;     // the optimizer's state in bf16 or eight bits
  bool update_inside = false;  // Update::inside

  bool any() const { return lean_state || update_inside; }
};

// What `--allow` says: "lean-state", "update-inside", or both separated by a comma. Throws
// std::invalid_argument.
Allowed parse_allowed(std::string_view text);

// What words of a configuration mean. Whoever acts on one of them reads it here.
struct TrainChoices {
  Mode mode = Mode::automatic;
  StackOptions numerics = {};  // numerics_of()
  Decay decay = Decay::cosine;
  optim::OptimizerOptions optimizer = {};
  Update update = Update::after;
  distributed::Shard shard = distributed::Shard::none;
  std::optional<std::int64_t> budget = std::nullopt;  // bytes; none: what is free
  Allowed allowed = {};
};

// Throws FieldError for the first value that is out of its range.
TrainChoices check(const TrainConfig& config);

// As check() returns them, of a configuration whose numbers nobody has to check. Throws FieldError.
TrainChoices choices_of(const TrainConfig& config);

// The device of the process with this rank on its machine. Throws FieldError when it is not there.
c10::Device device_of(const TrainConfig& config, int local_rank = 0);

// What the network computes with: fixed point where `exact` or `streams` ask for it; and, unless
// `streams` says float, with bf16 branches: one rounding of theirs that falls otherwise is 1/256 of
// a value, and a network of 6 blocks was seen to recover streams that were off by an eighth. Throws
// std::invalid_argument for a precision that there is not.
StackOptions numerics_of(const TrainConfig& config);

// The named network that is asked for, and what the fields change in it.
std::string model_of(const TrainConfig& config);
models::Overrides overrides_of(const TrainConfig& config);

// A configuration with the network of `network` in the fields of the network that `config` does not
// give.
TrainConfig with_network(TrainConfig config, const TrainConfig& network);
// The same of weights from `source`. Throws FieldError for a field of `config` that they
// contradict; sizes that weights can be adapted to (image size, windows, positions) and dropout may
// differ.
TrainConfig with_network_of_weights(TrainConfig config, const TrainConfig& network,
                                    const std::string& source);

}  // namespace pareprop::train
