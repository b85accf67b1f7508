#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/plan_text.h"
#include "cli/printable_stream.h"
#include "cli/progress.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/roberta.h"
#include "pareprop/plan/byte_size.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"

namespace pareprop::cli {
namespace {

struct PlanFlags : StepFlags {
  std::string budget;
  std::string optimizer = "adamw";
  std::int64_t accumulate = 1;
  std::string measure;  // "": not; "again": also where that was done before
};

int optimizer_copies(const std::string& optimizer) {
  if (optimizer == "adamw") return 2;
  if (optimizer == "none") return 0;
  throw UsageError("--optimizer: expected adamw or none, got '" + optimizer + "'");
}

constexpr const char* kOnce = "once";  // --measure without a value
constexpr const char* kAgain = "again";

std::int64_t budget_of(const std::string& text) {
  try {
    return text.empty() ? plan::free_budget() : plan::parse_byte_size(text);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--budget: ") + error.what());
  }
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

template <typename Number>
std::string number_text(Number value) {
  std::array<char, 32> buffer;
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr};
}

bool is_text(const at::Tensor& input) { return input.dim() == 2; }

std::int64_t vocabulary_of(const PlanFlags& flags) {
  return flags.network.overrides.vocabulary.value_or(models::RobertaConfig{}.vocabulary);
}

// What the data decide: the network that is trained has it of them.
std::string follows_data(const PlanFlags& flags, const models::Model& model, bool text_model) {
  if (text_model) {
    return "The plan has " + std::to_string(vocabulary_of(flags)) +
           " tokens; a text that is too small for so many has fewer, and --tokenizer its own.";
  }
  const auto* const images = dynamic_cast<const models::ImageModel*>(&model);
  if (images == nullptr) return "";
  return "The plan has " + std::to_string(images->shape().classes) +
         " classes; those of training follow the data.";
}

// What trains by the plan; empty: nothing does. Data that come with the program stand for the
// user's own.
std::string train_command(const PlanFlags& flags, const plan::Plan& plan, const at::Tensor& input) {
  const bool text_model = is_text(input);
  const std::int64_t parts = plan.fits ? 1 : plan.accumulate;
  if (flags.optimizer == "none" || parts == 0) return "";
  const models::Overrides& change = flags.network.overrides;
  std::string out = "pareprop train --model " + flags.network.model;
  const auto add = [&](const char* flag, const std::string& value) {
    out += std::string(" ") + flag + (value.empty() ? "" : " " + value);
  };
  const auto add_given = [&](const char* flag, const auto& value) {
    if (value) add(flag, number_text(*value));
  };
  if (change.plain) add("--plain", "");
  std::vector<std::string> depths;
  for (const int depth : change.depths) depths.push_back(std::to_string(depth));
  if (!depths.empty()) add("--depth", join(depths, ","));
  add_given("--width", change.width);
  add(text_model ? "--seq-len" : "--image-size", std::to_string(input.size(-1)));
  if (text_model) add("--vocabulary", std::to_string(vocabulary_of(flags)));
  add_given("--dropout", change.dropout);
  add_given("--drop-path", change.drop_path);
  add("--batch", std::to_string(plan.fits ? flags.batch : plan.micro_batch));
  if (flags.accumulate * parts > 1) add("--accumulate", std::to_string(flags.accumulate * parts));
  if (flags.precision != "fp32") add("--precision", flags.precision);
  if (flags.exact) add("--exact", "");
  if (!flags.exact && flags.precision == "bf16") add("--streams", "float");
  if (!flags.budget.empty()) add("--budget", without_spaces(flags.budget));
  if (flags.threads > 0) add("--threads", std::to_string(flags.threads));
  if (flags.seed != 0) add("--seed", std::to_string(flags.seed));
  add("--data", text_model ? "persuasion" : "synthetic");
  return out;
}

// By steps that are timed, or by what the machine multiplies in a second.
bool learn(plan::Planner& planner, const PlanFlags& flags, const plan::StepShape& shape,
           std::int64_t budget, const Console& console) {
  if (flags.measure.empty()) {
    planner.use(plan::measure_macs_per_second());
    return false;
  }
  const auto not_measured = [&](const std::string& why) {
    say(console.err, "plan", "--measure: " + why + "; nothing was timed");
    planner.use(plan::measure_macs_per_second());
    return false;
  };
  if (planner.plain()) return not_measured("times of a plain network decide nothing");
  budget = std::min(budget, plan::free_budget());
  if (planner.predict(planner.all(Mode::reprop)).total_peak > budget) {
    return not_measured("no reversible step fits here in " + plan::exact_bytes(budget));
  }
  const auto model =
      make_model(flags.network, {.dtype = stream_dtype(shape.precision), .seed = flags.seed});
  Progress progress(console.err);
  const auto times =
      plan::learn_times(planner, *model, model->example(shape.batch, flags.seed),
                        {.precision = shape.precision, .arithmetic = shape.arithmetic},
                        {.budget = budget,
                         .network = flags.network.model,
                         .folder = plan::cache_folder(),
                         .again = flags.measure == kAgain,
                         .on_message =
                             [&](const std::string& what) {
                               progress.clear();
                               say(console.err, "plan", what);
                             },
                         .on_step =
                             [&](int done, int all) {
                               progress.show("measuring: step " + std::to_string(done + 1) +
                                             " of " + std::to_string(all));
                             }});
  return times.has_value();
}

int plan_model(const PlanFlags& flags, const Console& console) {
  apply_step_flags(flags);
  expect_between("--accumulate", 1, 1 << 20, flags.accumulate);
  if (!flags.measure.empty() && flags.measure != kOnce && flags.measure != kAgain) {
    throw UsageError("--measure: expected no value, or 'again', got '" + flags.measure + "'");
  }
  const std::int64_t budget = budget_of(flags.budget);
  const Precision precision = parse_precision(flags.precision);
  const plan::StepShape shape{.batch = flags.batch,
                              .precision = precision,
                              .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
                              .optimizer_copies = optimizer_copies(flags.optimizer),
                              .accumulates = flags.accumulate > 1};
  const JsonOutput json(flags.json, console.out);
  plan::Planner planner(
      [&] {
        return make_model(flags.network, {.dtype = stream_dtype(precision), .device = at::kMeta});
      },
      shape);
  const bool measured = learn(planner, flags, shape, budget, console);
  const plan::Plan plan = planner.plan(budget);
  const auto model = make_model(flags.network, {.device = at::kMeta});
  const at::Tensor input = model->example(1, 0).input;
  const PlanReport report =
      report_of(planner, plan,
                {.network = title(flags.network),
                 .batch = flags.batch,
                 .precision = std::string(name(precision)),
                 .measured = measured,
                 .command = train_command(flags, plan, input),
                 .command_note = follows_data(flags, *model, is_text(input))});
  if (!json.takes_stdout()) console.out << plan_text(report);
  json.write(plan_json(report));
  if (plan.fits) return 0;
  console.err << "pareprop: " << plan::does_not_fit(plan, title(flags.network), flags.batch)
              << '\n';
  return 1;
}

std::string cache_text() {
  const auto folder = plan::cache_folder();
  return folder ? folder->string() : "no folder: HOME is not set";
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto* command =
      app.add_subcommand("plan", "See whether a training step fits in a number of bytes, and how");
  const auto flags = std::make_shared<PlanFlags>();
  add_one_step_flags(*command, *flags);
  command
      ->add_option("--budget", flags->budget,
                   "Bytes that all tensors may take, such as 8GiB (of 1024) or 8GB (of 1000) "
                   "(default: what is free here, less a margin)")
      ->type_name("SIZE");
  command->add_option("--optimizer", flags->optimizer,
                      "Whose state counts: adamw, or none (as in bench)");
  command->add_option("--accumulate", flags->accumulate, "Batches whose gradients make one step");
  const auto* const measure =
      command
          ->add_option("--measure", flags->measure,
                       "Time a few steps of the real network, so that the plan follows this "
                       "machine. The times "
                       "are kept, in " +
                           cache_text() +
                           "; 'again' measures anew (default: multiply-accumulates decide)")
          ->expected(0, 1)
          ->type_name("[again]");
  return [flags, measure](const Console& console) {
    // Without a value CLI11 leaves the text as it was, or makes "true" of it, as its version has
    // it.
    const bool bare = flags->measure.empty() || flags->measure == "true";
    if (measure->count() > 0 && bare) flags->measure = kOnce;
    return plan_model(*flags, console);
  };
}

}  // namespace pareprop::cli
