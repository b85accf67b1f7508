#include "cli/model_flags.h"

#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "cli/command.h"
#include "cli/output_file.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/models/overrides.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/plan_words.h"

namespace pareprop::cli {

namespace {

// CLI11 reads a number that is too small for its type as 0.
std::string check_that_a_double_holds(const std::string& text) {
  double number = 0.0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc::result_out_of_range) return {};
  return "expected a number that fits into 64 bits, got '" + text + "'";
}

}  // namespace

template <typename Value>
void add_word_flag(CLI::App& command, const char* flag, std::optional<Value>& value,
                   Value (*parse)(std::string_view), const char* help) {
  command
      .add_option_function<std::string>(
          flag, [&value, parse](const std::string& word) { value = parse(word); }, help)
      ->check([parse](const std::string& word) -> std::string {
        try {
          parse(word);
          return {};
        } catch (const std::invalid_argument& error) {
          return error.what();
        }
      });
}
template void add_word_flag(CLI::App&, const char*, std::optional<models::Ending>&,
                            models::Ending (*)(std::string_view), const char*);

void add_change_flags(CLI::App& command, models::Overrides& change) {
  command.add_flag("--plain", change.plain,
                   "Use the ordinary, non-reversible network (modes stored, checkpoint and auto)");
  command.add_option("--width", change.width, "Number of channels (default: the model's)");
  command.add_option("--classes", change.classes,
                     "Number of classes of images, or of whole texts (default: the model's)");
  command.add_option("--vocabulary", change.vocabulary,
                     "Number of tokens in the vocabulary, for text models (default: the model's)");
  command.add_option("--dropout", change.dropout, "Dropout probability (default: the model's)")
      ->check(check_that_a_double_holds);
  command
      .add_option("--drop-path", change.drop_path,
                  "Drop-path probability of the last block (default: the model's)")
      ->check(check_that_a_double_holds);
}

void add_seed_flag(CLI::App& command, std::uint64_t& seed, const std::string& help) {
  command.add_option("--seed", seed, help)->check([](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && rest == end) return {};
    return "expected a whole number from 0 to " +
           std::to_string(std::numeric_limits<std::uint64_t>::max()) + ", got '" + text + "'";
  });
}

void check_changes(const models::Overrides& change) {
  const auto size = [](const char* flag, std::int64_t most, std::optional<std::int64_t> got) {
    if (got) expect_between(flag, 1, most, *got);
  };
  for (const int depth : change.depths) expect_between("--depth", 0, models::kMostBlocks, depth);
  size("--width", models::kMostWidth, change.width);
  size("--image-size", models::kMostImageSize, change.image_size);
  size("--seq-len", models::kMostTokens, change.length);
  size("--classes", models::kMostClasses, change.classes);
  size("--vocabulary", models::kMostVocabulary, change.vocabulary);
  expect_probability("--dropout", change.dropout.value_or(0.0));
  expect_probability("--drop-path", change.drop_path.value_or(0.0));
}

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  models::Overrides& change = flags.overrides;
  command.add_option("--model", flags.model, "Network; 'pareprop models' lists all");
  command
      .add_option("--depth", change.depths,
                  "Number of blocks, or of each stage separated by commas (default: the model's)")
      ->delimiter(',');
  command.add_option("--image-size", change.image_size,
                     "Height and width of images in pixels (default: the model's)");
  command.add_option("--seq-len", change.length,
                     "Tokens in a sequence, for text models; more than the model's get "
                     "a longer table of positions (default: the model's)");
  add_word_flag(command, "--encoder", change.encoder, models::parse_encoder,
                "Of a text model: norm-first, or with --plain roberta or bert, whose norms are "
                "behind the sums (default: norm-first)");
  add_word_flag(command, "--ending", change.ending, models::parse_ending,
                "What is read of the streams at the end of a stack: concat, sum, mean, y1, y2, or "
                "sum-x (the sum minus the stack's input) (default: concat)");
  command.add_flag("--class-token", change.class_token,
                   "Give a reversible ViT the class token and the head of an ordinary one");
  add_change_flags(command, change);
}

std::string modes_help() {
  std::vector<std::string> names;
  for (const Mode mode : all_modes()) names.emplace_back(name(mode));
  return "Modes, separated by commas (default: " + join(names, ",") +
         "; with --plain: stored,checkpoint,auto)";
}

void add_one_step_flags(CLI::App& command, StepFlags& flags) {
  add_model_flags(command, flags.network);
  command.add_option("--batch", flags.batch, "Samples in a batch");
  command.add_option("--precision", flags.precision,
                     "Precision of the branches: fp32, bf16 or fp64");
  command.add_flag("--exact", flags.exact,
                   "Use fixed-point streams, which are recovered bit for bit (default: off)");
  add_seed_flag(command, flags.seed, "Random seed for weights, data and dropout");
  command.add_option("--threads", flags.threads, "CPU threads; 0: all cores");
  command.add_option("--device", flags.device, kDeviceHelp);
  command.add_option("--json", flags.json, kJsonHelp)->type_name("FILE");
}

void add_step_flags(CLI::App& command, StepFlags& flags) {
  add_one_step_flags(command, flags);
  command.add_option("--modes", flags.modes, modes_help());
}

void apply_step_flags(const StepFlags& flags) {
  expect_batch(flags.batch);
  expect_threads(flags.threads);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
}

std::shared_ptr<models::Model> make_model(const ModelFlags& flags,
                                          const models::WeightOptions& weights) {
  check_changes(flags.overrides);
  return models::make_model(flags.model, flags.overrides, weights);
}

namespace {

class FitCheck {
 public:
  FitCheck(const ModelFlags& flags, const StepNeeds& needs)
      : needs_(needs),
        dry_(
            [&] {
              return make_model(
                  flags, {.dtype = stream_dtype(needs.shape.precision), .device = at::kMeta});
            },
            needs.shape) {
    if (!needs.compares_gradients) return;
    for (const at::Tensor& weight : dry_.network().weights()) {
      kept_bytes_ += static_cast<std::int64_t>(weight.nbytes());
    }
  }

  // Of the mode that needs most.
  plan::Prediction predict(std::int64_t batch) {
    plan::Prediction most;
    const auto add = [&](Mode mode, std::int64_t kept) {
      const bool planned = mode == Mode::automatic, cut = planned && needs_.cuts_batches;
      // It takes what there is: what must fit is the leanest.
      const StepPlan plan = planned ? dry_.network().recomputing_plan(/*overlap=*/false)
                                    : dry_.network().plan_of(mode);
      plan::Prediction one = dry_.run(plan, cut ? 1 : batch, cut);
      one.at_most += kept;
      if (one.at_most > most.at_most) most = one;
    };
    if (needs_.compares_gradients) add(Mode::stored, 0);
    for (const Mode mode : needs_.modes) add(mode, kept_bytes_);
    return most;
  }

  std::int64_t largest_batch(std::int64_t budget) {
    std::int64_t fits = 0, too_large = needs_.shape.batch;
    while (too_large - fits > 1) {
      const std::int64_t middle = fits + (too_large - fits) / 2;
      (predict(middle).at_most <= budget ? fits : too_large) = middle;
    }
    return fits;
  }

 private:
  const StepNeeds& needs_;
  plan::DryStep dry_;
  std::int64_t kept_bytes_ = 0;
};

}  // namespace

void expect_to_fit(const ModelFlags& flags, const StepNeeds& needs) {
  const memory::MemoryLimit limit = plan::limit_of(needs.shape.device);
  // A registered network may ignore the device that it is asked to be on: then it is there already.
  if (!make_model(flags, {.device = at::kMeta})->weight_options().device().is_meta()) return;
  FitCheck check(flags, needs);
  plan::Plan plan;
  plan.budget = plan::free_budget(needs.shape.device);
  plan.predicted = check.predict(needs.shape.batch);
  if (plan.predicted.at_most <= plan.budget) return;
  plan.smallest_budget = plan.predicted.at_most;
  plan.largest_batch = check.largest_batch(plan.budget);
  throw std::invalid_argument("not enough memory (limited by " + limit.name +
                              "): " + plan::does_not_fit(plan, title(flags), needs.shape.batch));
}

std::string title(const ModelFlags& flags) {
  return (flags.overrides.plain ? "plain " : "") + flags.model;
}

std::vector<Mode> parse_modes(const std::string& text, bool plain) {
  if (text.empty()) {
    return plain ? plain_modes() : all_modes();
  }
  std::vector<Mode> modes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    modes.push_back(parse_mode(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return modes;
}

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

}  // namespace pareprop::cli
