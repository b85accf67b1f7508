#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <ostream>

#include "cli/auto_plan.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/plan_text.h"
#include "cli/printable_stream.h"
#include "cli/progress.h"
#include "pareprop/device/choose_device.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/roberta.h"
#include "pareprop/optim/make_optimizer.h"
#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"
#include "pareprop/text/units.h"
#include "pareprop/train/allowed_ways.h"
#include "pareprop/train/learner.h"
#include "pareprop/train/process_memory.h"

namespace pareprop::cli {
namespace {

struct PlanFlags : StepFlags {
  std::string budget;
  std::string optimizer = "adamw";
  std::string optimizer_state = "fp32";
  std::string update = "after";
  double clip = train::TrainConfig{}.clip;
  std::string allow;
  std::int64_t processes = 1;
  std::string shard = "none";
  std::int64_t accumulate = 1;
  std::string measure;  // "": not; "again": also where that was done before
};

constexpr const char* kNoOptimizer = "none";

// What `parse` makes of the value of a flag.
template <typename Parse>
auto parsed(const char* flag, const std::string& value, Parse parse) {
  try {
    return parse(value);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string(flag) + ": " + error.what());
  }
}

optim::OptimizerOptions optimizer_options(const PlanFlags& flags) {
  optim::OptimizerOptions options;
  options.state = parsed("--optimizer-state", flags.optimizer_state, optim::parse_state_kind);
  if (flags.optimizer == kNoOptimizer) return options;
  options.kind = parsed("--optimizer", flags.optimizer, optim::parse_optimizer_kind);
  parsed("--optimizer-state", flags.optimizer_state,
         [&](const std::string&) { optim::check_suits(options.kind, options.state); });
  if (options.state != optim::StateKind::fp32 && flags.precision == "fp64") {
    throw UsageError("--optimizer-state: expected fp32, because --precision is fp64, got " +
                     flags.optimizer_state);
  }
  return options;
}

plan::MakeOptimizer optimizer_state(const PlanFlags& flags) {
  const optim::OptimizerOptions options = optimizer_options(flags);
  return flags.optimizer == kNoOptimizer ? nullptr : train::dry_optimizer(options);
}

// As `train` would take them.
train::TrainConfig trained_by(const PlanFlags& flags) {
  train::TrainConfig config;
  config.precision = flags.precision;
  config.batch = flags.batch;
  config.accumulate = flags.accumulate;
  config.update = flags.update;
  config.clip = flags.clip;
  config.optimizer = flags.optimizer;
  config.optimizer_state = flags.optimizer_state;
  config.shard = flags.shard;
  return config;
}

// Of a process that needs the most: of the network as the flags have it, trained as `config` says.
plan::StepShape shape_of(const PlanFlags& flags, const train::TrainConfig& config,
                         const models::Model& model) {
  PlanFlags other = flags;
  other.optimizer_state = config.optimizer_state;
  const bool inside = config.update == "inside";
  plan::StepShape shape{.batch = flags.batch,
                        .device = planned_device(flags.device),
                        .precision = parse_precision(flags.precision),
                        .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
                        .optimizer_state = optimizer_state(other),
                        .goes_back_twice = inside && config.clip > 0.0};
  const at::Tensor input = model.example(1, 0).input;
  (shape.device.is_cpu() ? shape.input_bytes : shape.ahead_bytes) =
      static_cast<std::int64_t>(input.nbytes());
  const auto processes = static_cast<int>(flags.processes);
  train::divide(shape, model,
                {.rank = train::fullest_rank(model.weights(), processes),
                 .all = processes,
                 .shard = parsed("--shard", config.shard, distributed::parse_shard),
                 .update = inside ? train::Update::inside : train::Update::after,
                 .accumulates = flags.accumulate > 1});
  return shape;
}

std::vector<train::AllowedWay> allowed_ways(const PlanFlags& flags) {
  const train::Allowed allowed = parsed("--allow", flags.allow, train::parse_allowed);
  if (!allowed.any()) return {};
  if (allowed.update_inside && flags.accumulate > 1) {
    throw UsageError("--allow: expected no update-inside, because --accumulate is " +
                     std::to_string(flags.accumulate));
  }
  if (flags.optimizer == kNoOptimizer) {
    throw UsageError("--allow: expected none, because --optimizer is none");
  }
  return train::allowed_ways(trained_by(flags), allowed);
}

constexpr const char* kOnce = "once";  // --measure without a value
constexpr const char* kAgain = "again";

std::int64_t budget_of(const std::string& text, c10::Device device) {
  if (text.empty() && !is_present(device)) {
    throw UsageError(
        "--budget: expected a number of bytes such as 80GiB, because this machine has no " +
        device.str() + " whose free memory could be asked");
  }
  try {
    return text.empty() ? plan::free_budget(device) : text::parse_byte_size(text);
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
    return "The plan assumes a vocabulary of " + std::to_string(vocabulary_of(flags)) +
           " tokens; a small text gives fewer, and --tokenizer has its own.";
  }
  const auto* const images = dynamic_cast<const models::ImageModel*>(&model);
  if (images == nullptr) return "";
  return "The plan assumes " + std::to_string(images->shape().classes) +
         " classes; training takes the number from the data.";
}

// What trains by the plan; empty: nothing does. Data that come with the program stand for the
// user's own.
std::string train_command(const PlanFlags& flags, const plan::JointPlan& plan,
                          const at::Tensor& input) {
  const bool text_model = is_text(input);
  const models::Overrides& change = flags.network.overrides;
  if (flags.optimizer == kNoOptimizer || !plan.micro.fits) return "";
  if (change.encoder == models::Encoder::bert || (text_model && change.classes)) return "";
  std::string out = "pareprop train --model " + flags.network.model;
  const auto add = [&](const char* flag, const std::string& value) {
    out += std::string(" ") + flag + (value.empty() ? "" : " " + value);
  };
  const auto add_given = [&](const char* flag, const auto& value) {
    if (value) add(flag, number_text(*value));
  };
  if (change.plain) add("--plain", "");
  if (change.encoder) add("--encoder", std::string(models::name(*change.encoder)));
  if (change.ending) add("--ending", std::string(models::name(*change.ending)));
  if (change.class_token) add("--class-token", "");
  std::vector<std::string> depths;
  for (const int depth : change.depths) depths.push_back(std::to_string(depth));
  if (!depths.empty()) add("--depth", join(depths, ","));
  add_given("--width", change.width);
  add(text_model ? "--seq-len" : "--image-size", std::to_string(input.size(-1)));
  if (text_model) add("--vocabulary", std::to_string(vocabulary_of(flags)));
  add_given("--dropout", change.dropout);
  add_given("--drop-path", change.drop_path);
  add("--batch", std::to_string(flags.batch));
  if (flags.accumulate > 1) add("--accumulate", std::to_string(flags.accumulate));
  if (flags.optimizer != "adamw") add("--optimizer", flags.optimizer);
  if (flags.optimizer_state != "fp32") add("--optimizer-state", flags.optimizer_state);
  if (flags.update != "after") add("--update", flags.update);
  if (flags.clip != train::TrainConfig{}.clip) add("--clip", number_text(flags.clip));
  if (!flags.allow.empty()) add("--allow", flags.allow);
  if (flags.processes > 1) add("--nproc", std::to_string(flags.processes));
  if (flags.shard != "none") add("--shard", flags.shard);
  if (flags.precision != "fp32") add("--precision", flags.precision);
  if (flags.exact) add("--exact", "");
  if (!flags.exact && flags.precision == "bf16") add("--streams", "float");
  if (!flags.budget.empty()) add("--budget", without_spaces(flags.budget));
  if (flags.device != "auto") add("--device", flags.device);
  if (flags.threads > 0) add("--threads", std::to_string(flags.threads));
  if (flags.seed != 0) add("--seed", std::to_string(flags.seed));
  add("--data", text_model ? "persuasion" : "synthetic");
  return out;
}

// By steps that are timed, or by what the machine multiplies in a second.
bool learn(plan::JointSearch& search, const PlanFlags& flags, const plan::StepShape& shape,
           std::int64_t budget, const Console& console) {
  const bool present = is_present(shape.device);
  // Of a device that is not here only the shares count.
  const auto estimate = [&] {
    search.use(present ? plan::measure_macs_per_second(shape.device) : plan::MacsPerSecond{1e12});
    return false;
  };
  if (flags.measure.empty()) return estimate();
  const auto not_measured = [&](const std::string& why) {
    say(console.err, "plan", "--measure: " + why + "; nothing was timed");
    return estimate();
  };
  if (!present) return not_measured("this machine has no " + shape.device.str());
  budget = std::min(budget, plan::free_budget(shape.device));
  if (search.sizes_to_measure(budget).empty()) {
    return not_measured("not even mode " +
                        std::string(name(search.planner().network().leanest_mode())) + " fits in " +
                        plan::exact_bytes(budget));
  }
  const auto model = make_model(
      flags.network,
      {.dtype = stream_dtype(shape.precision), .device = shape.device, .seed = flags.seed});
  Progress progress(console.err);
  const auto times =
      plan::learn_times(search, *model,
                        {.budget = budget,
                         .network = plan::network_name(flags.network.model, model->tokens()),
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
  return !times.empty();
}

int plan_model(const PlanFlags& flags, const Console& console) {
  apply_step_flags(flags);
  if (!(flags.clip >= 0.0) || std::isinf(flags.clip)) {
    throw UsageError("--clip: expected 0 or more, got " + number_text(flags.clip));
  }
  expect_between("--accumulate", 1, 1 << 20, flags.accumulate);
  if (!flags.measure.empty() && flags.measure != kOnce && flags.measure != kAgain) {
    throw UsageError("--measure: expected no value, or 'again', got '" + flags.measure + "'");
  }
  const bool inside = flags.update == "inside";
  if (!inside && flags.update != "after") {
    throw UsageError("--update: expected after or inside, got '" + flags.update + "'");
  }
  if (inside && flags.accumulate > 1) {
    throw UsageError("--update: expected after, because --accumulate is " +
                     std::to_string(flags.accumulate));
  }
  const c10::Device device = planned_device(flags.device);
  const std::int64_t budget = budget_of(flags.budget, device);
  expect_between("--processes", 1, 1 << 16, flags.processes);
  const auto model = make_model(flags.network, {.device = at::kMeta});
  const train::ShapeOf shape_so = [&](const train::TrainConfig& config) {
    return shape_of(flags, config, *model);
  };
  const train::TrainConfig trained = trained_by(flags);
  const plan::StepShape shape = shape_so(trained);
  const JsonOutput json(flags.json, console.out);
  const at::Tensor input = model->example(1, 0).input;
  plan::JointSearch search =
      make_search(flags.network, shape, train::departures(trained, allowed_ways(flags), shape_so));
  const bool measured = learn(search, flags, shape, budget, console);
  plan::JointPlan plan = search.best(budget);
  search.add_figures(plan);
  const PlanReport report =
      report_of(search, plan,
                {.network = title(flags.network),
                 .batch = flags.batch,
                 .precision = std::string(name(shape.precision)),
                 .measured = measured,
                 .absent = is_present(device) ? "" : device.str(),
                 .command = train_command(flags, plan, input),
                 .command_note = follows_data(flags, *model, is_text(input))});
  if (!json.takes_stdout()) console.out << plan_text(report);
  json.write(plan_json(report));
  if (plan.micro.fits) return 0;
  const std::string help =
      flags.optimizer == kNoOptimizer
          ? ""
          : train::what_would_help(trained, static_cast<int>(flags.processes), budget,
                                   on_meta(flags.network, shape.precision), shape_so);
  console.err << "pareprop: "
              << plan::does_not_fit(plan.micro, title(flags.network), flags.batch, help) << '\n';
  return 1;
}

std::string cache_text() {
  const auto folder = plan::cache_folder();
  return folder ? folder->string() : "no file, because HOME is not set";
}

}  // namespace

Action add_plan(CLI::App& app) {
  auto* command = app.add_subcommand(
      "plan",
      "Find the fastest way to run a training step in a number of bytes, and predict its memory");
  const auto flags = std::make_shared<PlanFlags>();
  add_one_step_flags(*command, *flags);
  command
      ->add_option("--budget", flags->budget,
                   "Bytes that all tensors may take, such as 8GiB or 8GB (default: the free memory "
                   "minus a margin)")
      ->type_name("SIZE");
  command->add_option("--optimizer", flags->optimizer,
                      "Optimizer whose state is counted: adamw, sgd (with momentum), "
                      "adafactor or none");
  command->add_option("--optimizer-state", flags->optimizer_state,
                      "Type of the optimizer's state: fp32, bf16 or 8bit");
  command->add_option(
      "--update", flags->update,
      "When the optimizer steps: after the backward pass, or inside it. Inside, the gradients of "
      "at most two blocks are in memory");
  command->add_option("--clip", flags->clip,
                      "Gradient clipping, as train has it; 0: none. With updates inside the "
                      "backward pass it takes a second backward pass");
  command->add_option("--allow", flags->allow,
                      "What the plan may change to fit or to be faster, separated by commas: "
                      "lean-state (keep the optimizer's state in bf16 or 8 bits), update-inside "
                      "(step the optimizer inside the backward pass) (default: nothing but the "
                      "rounding of sums)");
  command->add_option("--processes", flags->processes,
                      "Number of processes that train together. The plan is for the process that "
                      "needs the most memory");
  command->add_option("--shard", flags->shard,
                      "What is divided among the processes: none, state (of the optimizer) or "
                      "gradients (and the state)");
  command->add_option("--accumulate", flags->accumulate,
                      "Gradient accumulation: batches in one step of the optimizer");
  const auto* const measure =
      command
          ->add_option("--measure", flags->measure,
                       "Time a few steps of the real network and use these times for the plan. "
                       "They are saved "
                       "in " +
                           cache_text() +
                           "; 'again' repeats the measurement (default: estimate times from "
                           "multiply-accumulates)")
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
