#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/models/registry.h"
#include "pareprop/plan/dry_step.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// Which network, in the words that every subcommand understands.
struct ModelFlags {
  std::string model = "vit_tiny";
  models::Overrides overrides;
};

// --plain, --width, --classes, --vocabulary, --dropout and --drop-path.
void add_change_flags(CLI::App& command, models::Overrides& change);

// Those, --model, --depth, --image-size and --seq-len into `flags`, which must outlive the app.
void add_model_flags(CLI::App& command, ModelFlags& flags);

// A flag whose word `parse` reads, or throws std::invalid_argument for. `value` must outlive the
// app.
template <typename Value>
void add_word_flag(CLI::App& command, const char* flag, std::optional<Value>& value,
                   Value (*parse)(std::string_view), const char* help);

// --seed. CLI11 would take -1 and numbers that are too large for one that fits.
void add_seed_flag(CLI::App& command, std::uint64_t& seed, const std::string& help);

// Throws UsageError for sizes and probabilities that no network has.
void check_changes(const models::Overrides& change);

// Throws UsageError or std::invalid_argument, naming what does not fit.
std::shared_ptr<models::Model> make_model(const ModelFlags& flags,
                                          const models::WeightOptions& weights);

// What one step of a command takes besides the network and its activations.
struct StepNeeds {
  plan::StepShape shape;
  std::vector<Mode> modes;          // each is run once
  bool cuts_batches = false;        // in mode auto: what must fit is one sample
  bool compares_gradients = false;  // with those of ordinary autograd, which are kept
};

// Throws std::invalid_argument where a step would not fit in what is free, saying what takes how
// much and what would help. By shapes alone: to be called before the network is made.
void expect_to_fit(const ModelFlags& flags, const StepNeeds& needs);

// "vit_tiny", "plain vit_tiny".
std::string title(const ModelFlags& flags);

// What subcommands that run training steps of a network share.
struct StepFlags {
  ModelFlags network;
  std::int64_t batch = 4;
  std::string precision = "fp32";
  bool exact = false;
  std::string modes;
  std::uint64_t seed = 0;
  int threads = 0;
  std::string device = "auto";
  std::string json;
};

// The flags of the network, --batch, --precision, --exact, --seed, --threads and --json.
void add_one_step_flags(CLI::App& command, StepFlags& flags);
// Those and --modes.
void add_step_flags(CLI::App& command, StepFlags& flags);

// The text of --modes in --help.
std::string modes_help();

// Throws UsageError for numbers out of their range; sets the number of threads.
void apply_step_flags(const StepFlags& flags);

// Modes separated by commas; empty: all that the network can be trained in. Throws
// std::invalid_argument.
std::vector<Mode> parse_modes(const std::string& text, bool plain);
std::string join(const std::vector<std::string>& words, const std::string& separator);

}  // namespace pareprop::cli
