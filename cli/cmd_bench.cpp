#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/graph/text.h"
#include "pareprop/measure/measure.h"
#include "pareprop/models/cost.h"

namespace pareprop::cli {
namespace {

struct Flags : StepFlags {
  int rounds = 5;
  int steps = 2;
};

MeasureOptions checked_options(const Flags& flags) {
  apply_step_flags(flags);
  expect_at_least("--rounds", 1, flags.rounds);
  expect_at_least("--steps", 1, flags.steps);
  return {.modes = parse_modes(flags.modes, flags.network.overrides.plain),
          .batch = flags.batch,
          .precision = parse_precision(flags.precision),
          .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
          .rounds = flags.rounds,
          .steps = flags.steps,
          .seed = flags.seed};
}

int bench_model(const Flags& flags, const Console& console) {
  MeasureOptions options = checked_options(flags);
  const JsonOutput json(flags.json, console.out);
  const auto shape = make_model(flags.network, {.device = at::kMeta});
  options.forward_macs = models::cost_of(*shape).macs;
  const auto model =
      make_model(flags.network, {.dtype = stream_dtype(options.precision), .seed = flags.seed});
  int depth = 0;
  for (const Stack& stack : model->stacks()) depth += stack->depth();

  std::vector<MeasureRow> rows;
  {
    Progress progress(console.err);
    options.on_turn = [&](Mode mode, int round) {
      progress.show(title(flags.network) + ", round " + std::to_string(round) + " of " +
                    std::to_string(options.rounds) + ": " + std::string(name(mode)));
    };
    rows = measure(*model, options);
  }

  Table table({{"mode", Align::left},
               {"step"},
               {"best"},
               {"samples/s"},
               {"activations"},
               {"peak"},
               {"GFLOP/s"},
               {"loss"}});
  auto json_rows = nlohmann::ordered_json::array();
  for (const MeasureRow& row : rows) {
    const double seconds = row.median_ms() / 1e3;
    const double samples = static_cast<double>(options.batch) / seconds;
    const double gflops = row.flops_per_step / seconds / 1e9;
    table.add_row({std::string(name(row.mode)), text::fixed(row.median_ms(), 1) + " ms",
                   text::fixed(row.best_ms(), 1) + " ms", text::fixed(samples, 2),
                   bytes_text(static_cast<double>(row.activation_peak_bytes)),
                   bytes_text(static_cast<double>(row.peak_bytes)), text::fixed(gflops, 1),
                   text::fixed(row.loss, 6)});
    json_rows.push_back({{"model", flags.network.model},
                         {"plain", flags.network.overrides.plain},
                         {"mode", name(row.mode)},
                         {"precision", name(options.precision)},
                         {"arithmetic", name(options.arithmetic)},
                         {"batch", options.batch},
                         {"depth", depth},
                         {"threads", at::get_num_threads()},
                         {"step_ms", row.median_ms()},
                         {"step_ms_best", row.best_ms()},
                         {"samples_per_s", samples},
                         {"activation_peak_bytes", row.activation_peak_bytes},
                         {"peak_bytes", row.peak_bytes},
                         {"flops_per_step", row.flops_per_step},
                         {"gflops", gflops},
                         {"loss", row.loss}});
  }
  if (!json.takes_stdout()) {
    console.out
        << table.text() << "\n"
        << title(flags.network) << ", batch " << options.batch << ", " << name(options.precision)
        << ", " << at::get_num_threads() << " threads. Median of " << options.rounds * options.steps
        << " steps of forward and backward, modes taking turns;\nactivations: all but "
           "weights and gradients. GFLOP/s counts what a mode computes, recomputation too.\n";
  }
  json.write({{"rows", std::move(json_rows)}});
  return 0;
}

}  // namespace

Action add_bench(CLI::App& app) {
  auto* command =
      app.add_subcommand("bench", "Time a training step in every mode, and see its memory");
  const auto flags = std::make_shared<Flags>();
  add_step_flags(*command, *flags);
  command->add_option("--rounds", flags->rounds, "Turns of each mode");
  command->add_option("--steps", flags->steps, "Steps of a turn");
  return [flags](const Console& console) { return bench_model(*flags, console); };
}

}  // namespace pareprop::cli
