#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/auto_plan.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/sweep/verify.h"

namespace pareprop::cli {
namespace {

VerifyOptions checked_options(const StepFlags& flags) {
  apply_step_flags(flags);
  return {.modes = parse_modes(flags.modes, flags.network.overrides.plain),
          .batch = flags.batch,
          .precision = parse_precision(flags.precision),
          .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
          .seed = flags.seed};
}

nlohmann::ordered_json json_row(const VerifyRow& row, Precision precision) {
  nlohmann::ordered_json json{{"mode", name(row.mode)},
                              {"max_rel_error", row.max_rel_error},
                              {"bit_identical", row.bit_identical},
                              {"missing_gradients", row.missing_gradients},
                              {"drift", row.drift},
                              {"holds", row.holds}};
  if (!row.holds) json["error"] = complaint(row, precision);
  return json;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int verify_model(const StepFlags& flags, const Console& console) {
  VerifyOptions options = checked_options(flags);
  const c10::Device device = chosen_device(flags.device);
  const JsonOutput json(flags.json, console.out);
  const plan::StepShape shape{.batch = options.batch,
                              .device = device,
                              .precision = options.precision,
                              .arithmetic = options.arithmetic,
                              .optimizer_state = {}};
  expect_to_fit(flags.network,
                {.shape = shape, .modes = options.modes, .compares_gradients = true});
  const auto model =
      make_model(flags.network,
                 {.dtype = stream_dtype(options.precision), .device = device, .seed = flags.seed});
  int depth = 0;
  for (const Stack& stack : model->stacks()) depth += stack->depth();

  std::vector<VerifyRow> rows;
  {
    Progress progress(console.err);
    progress.show("one training step of " + title(flags.network) + " in each mode ...");
    if (std::erase(options.modes, Mode::automatic) > 0) {
      options.plans.push_back(plan_of_a_mixture(flags.network, shape));
    }
    rows = verify(*model, options);
  }

  const double tolerance = verify_tolerance(options.precision);
  Table table({{"mode", Align::left},
               {"max_rel_error"},
               {"bit_identical"},
               {"missing"},
               {"drift"},
               {"holds"}});
  auto json_rows = nlohmann::ordered_json::array();
  std::vector<std::string> broken;
  std::string reason;
  for (const VerifyRow& row : rows) {
    table.add_row({std::string(name(row.mode)), error_text(row.max_rel_error),
                   yes_no(row.bit_identical), std::to_string(row.missing_gradients),
                   error_text(row.drift), yes_no(row.holds)});
    json_rows.push_back(json_row(row, options.precision));
    if (row.holds) continue;
    broken.emplace_back(name(row.mode));
    if (reason.empty()) reason = first_line(complaint(row, options.precision));
  }
  if (!json.takes_stdout()) {
    console.out << table.text() << "\n"
                << title(flags.network) << ", " << depth << " blocks, batch " << options.batch
                << ", " << name(options.precision) << ", " << name(options.arithmetic)
                << " streams.\nGradients of one training step against "
                << (flags.exact ? "mode stored, bit for bit"
                                : "ordinary autograd (tolerance " + error_text(tolerance) + ")")
                << ".\n";
  }
  json.write({{"model", flags.network.model},
              {"plain", flags.network.overrides.plain},
              {"depth", depth},
              {"batch", options.batch},
              {"precision", name(options.precision)},
              {"arithmetic", name(options.arithmetic)},
              {"seed", options.seed},
              {"threads", at::get_num_threads()},
              {"device", device.str()},
              {"tolerance", tolerance},
              {"ok", broken.empty()},
              {"rows", std::move(json_rows)}});
  if (broken.empty()) return 0;
  console.err << "pareprop: gradients are wrong in mode " << join(broken, ", ") << ": " << reason
              << '\n';
  return 1;
}

}  // namespace

Action add_verify(CLI::App& app) {
  auto* command = app.add_subcommand(
      "verify", "Compare the gradients of every mode with those of ordinary autograd");
  const auto flags = std::make_shared<StepFlags>();
  flags->batch = 2;
  add_step_flags(*command, *flags);
  return [flags](const Console& console) { return verify_model(*flags, console); };
}

}  // namespace pareprop::cli
