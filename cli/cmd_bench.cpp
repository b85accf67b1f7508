#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <optional>
#include <ostream>

#include "cli/bench_flags.h"
#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/sweep/run_sweep.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"

namespace pareprop::cli {
namespace {

using sweep::ResultRow;

std::string ms_text(double ms) { return text::fixed(ms, 1); }

Table table_of(const std::vector<ResultRow>& rows) {
  Table table({{"mode", Align::left},
               {"step ms"},
               {"forward"},
               {"backward"},
               {"samples/s"},
               {"activations"},
               {"peak"}});
  for (const ResultRow& row : rows) {
    std::string mode = row.mode;
    if (row.budget_bytes > 0) mode += " " + bytes_text(static_cast<double>(row.budget_bytes));
    if (!row.timed()) {
      table.add_row({mode, row.fits ? "wrong" : "too large", "-", "-", "-", "-", "-"});
      continue;
    }
    table.add_row({mode, ms_text(row.step_ms), ms_text(row.forward_ms), ms_text(row.backward_ms),
                   text::fixed(row.samples_per_s, 2),
                   bytes_text(static_cast<double>(row.activation_peak_bytes)),
                   bytes_text(static_cast<double>(row.peak_bytes))});
  }
  return table;
}

// "auto 318.0 MiB: in 16 parts of 2 samples", or how small a budget may be; empty: no batch was cut
// and all budgets were kept.
std::string budget_words(const std::vector<ResultRow>& rows) {
  std::string out;
  for (const ResultRow& row : rows) {
    const bool cut = row.timed() && row.parts > 1, refused = row.smallest_budget_bytes > 0;
    if (!cut && !refused) continue;
    out += row.mode + " " + bytes_text(static_cast<double>(row.budget_bytes)) + ": ";
    if (cut) {
      out += "in " + std::to_string(row.parts) + " parts of " +
             std::to_string(row.batch / row.parts) +
             (row.batch == row.parts ? " sample\n" : " samples\n");
    } else {
      out += "the smallest budget for this batch is " +
             plan::exact_bytes(row.smallest_budget_bytes) + "\n";
    }
  }
  return out.empty() ? out : out + "\n";
}

std::string progress_text(const sweep::SweepProgress& now) {
  std::string out = "case " + std::to_string(now.number) + " of " + std::to_string(now.cases);
  if (now.seconds_left >= 0.0) out += ", " + text::duration_text(now.seconds_left) + " left";
  return out + ": " + now.doing;
}

std::string closing_words(const sweep::Sweep& asked, const sweep::SweepResult& result) {
  std::string out = wrapped("Medians of " + std::to_string(asked.rounds * asked.steps) +
                            " steps (forward and backward pass). The modes took turns; their "
                            "gradients were compared before. activations: everything except "
                            "weights and gradients. --json also has percentiles, GFLOP/s and the "
                            "loss.") +
                    "\n";
  if (result.skipped > 0) {
    out += std::to_string(result.skipped) + (result.skipped == 1 ? " case was" : " cases were") +
           " already in the file and did not run again.\n";
  }
  return out;
}

int bench(const BenchFlags& flags, const Console& console) {
  const sweep::Sweep asked = sweep_of(flags);
  const JsonOutput json(flags.json, console.out);
  // Before the file of results is made: what cannot be leaves none.
  const std::vector<sweep::Case> cases = cases_of(asked, at::get_num_threads());
  for (const sweep::Case& one : cases) {
    if (flags.sweep.empty()) check_changes(one.change);
    models::make_model(one.model, one.change, {.device = at::kMeta});
  }
  std::optional<sweep::ResultsFile> file;
  if (!flags.out.empty()) file.emplace(flags.out, sweep::this_machine(cases.front().device));

  std::string reason;
  Progress progress(console.err);
  sweep::SweepOptions options;
  options.on_progress = [&](const sweep::SweepProgress& now) { progress.show(progress_text(now)); };
  options.on_case = [&](const sweep::Case& one, const std::vector<ResultRow>& rows, bool) {
    progress.clear();
    for (const ResultRow& row : rows) {
      if (reason.empty() && !row.error.empty()) reason = row.mode + ": " + row.error;
    }
    if (json.takes_stdout()) return;
    console.out << wrapped(one.name()) << "\n\n"
                << table_of(rows).text() << "\n"
                << budget_words(rows) << std::flush;
  };
  const sweep::SweepResult result = run_sweep(asked, file ? &*file : nullptr, options);

  if (!json.takes_stdout()) console.out << closing_words(asked, result);
  auto json_rows = nlohmann::ordered_json::array();
  for (const ResultRow& row : result.rows) {
    json_rows.push_back(nlohmann::ordered_json::parse(to_json(row)));
  }
  json.write({{"rows", std::move(json_rows)}});
  if (result.wrong.empty()) return 0;
  console.err << "pareprop: " << result.wrong.size()
              << (result.wrong.size() == 1 ? " case was" : " cases were")
              << " not timed; the first is '" << result.wrong.front() << "', in mode "
              << reason.substr(0, reason.find('\n')) << '\n';
  return 1;
}

}  // namespace

Action add_bench(CLI::App& app) {
  auto* command = app.add_subcommand(
      "bench",
      "Time training steps in every mode and measure their memory, for one case or for many. Flags "
      "with '...' take lists separated by commas; all combinations are run.");
  const auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(*command, *flags);
  return [flags](const Console& console) { return bench(*flags, console); };
}

}  // namespace pareprop::cli
