#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/plan_text.h"
#include "cli/printable_stream.h"
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
  bool measure = false;
};

int optimizer_copies(const std::string& optimizer) {
  if (optimizer == "adamw") return 2;
  if (optimizer == "none") return 0;
  throw UsageError("--optimizer: expected adamw or none, got '" + optimizer + "'");
}

// By steps that are timed, or by what the machine multiplies in a second.
bool learn(plan::Planner& planner, const PlanFlags& flags, const plan::StepShape& shape,
           std::int64_t budget, const Console& console) {
  if (!flags.measure) {
    planner.use(plan::measure_macs_per_second());
    return false;
  }
  const auto model =
      make_model(flags.network, {.dtype = stream_dtype(shape.precision), .seed = flags.seed});
  const auto times = plan::learn_times(
      planner, *model, model->example(shape.batch, flags.seed),
      {.precision = shape.precision, .arithmetic = shape.arithmetic},
      {.budget = budget,
       .network = flags.network.model,
       .folder = plan::cache_folder(),
       .on_message = [&](const std::string& what) { say(console.err, "plan", what); }});
  return times.has_value();
}

int plan_model(const PlanFlags& flags, const Console& console) {
  apply_step_flags(flags);
  expect_at_least("--accumulate", 1, flags.accumulate);
  const std::int64_t budget =
      flags.budget.empty() ? plan::free_budget() : plan::parse_byte_size(flags.budget);
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
  if (!json.takes_stdout()) {
    console.out << plan_text(planner, plan,
                             {.network = title(flags.network),
                              .batch = flags.batch,
                              .precision = std::string(name(precision)),
                              .measured = measured});
  }
  json.write(plan_json(plan, measured));
  if (plan.fits) return 0;
  console.err << "pareprop: " << plan::does_not_fit(plan, title(flags.network), flags.batch)
              << '\n';
  return 1;
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
  command->add_flag("--measure", flags->measure,
                    "Time a few steps of the real network, so that the plan follows this machine; "
                    "once, then kept (default: multiply-accumulates decide)");
  return [flags](const Console& console) { return plan_model(*flags, console); };
}

}  // namespace pareprop::cli
