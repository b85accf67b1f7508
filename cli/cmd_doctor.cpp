#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/models/registry.h"
#include "pareprop/sweep/doctor.h"
#include "pareprop/text/fixed.h"

namespace pareprop::cli {
namespace {

using sweep::Examination;

struct DoctorFlags {
  std::string device = "auto";
  std::vector<std::string> models;
  std::vector<std::int64_t> batches;
  bool quick = false;
  std::string out = "pareprop-doctor.json";
  std::string json;
};

std::string gradients_text(const Examination& found) {
  Table table({{"network", Align::left},
               {"precision", Align::left},
               {"streams", Align::left},
               {"max error"},
               {"drift"},
               {"holds"}});
  for (const sweep::VerifiedNetwork& one : found.verified) {
    double error = 0.0, drift = 0.0;
    for (const VerifyRow& row : one.rows) {
      error = std::max(error, row.max_rel_error);
      drift = std::max(drift, row.drift);
    }
    const bool compared = one.error.empty();
    table.add_row({one.model, std::string(name(one.precision)), std::string(name(one.arithmetic)),
                   compared ? error_text(error) : "-", compared ? error_text(drift) : "-",
                   yes_no(one.holds())});
  }
  return table.text();
}

// A table for each network, batch and precision.
std::string race_text(const Examination& found) {
  std::string text, last;
  std::optional<Table> table;
  const auto end_table = [&] {
    if (table) text += wrapped(last) + "\n\n" + table->text() + "\n";
  };
  for (const sweep::RacedMode& one : found.raced) {
    const sweep::ResultRow& row = one.row;
    const std::string what =
        row.model + ", batch " + std::to_string(row.batch) + ", " + row.precision;
    if (what != last) {
      end_table();
      last = what;
      table.emplace(std::vector<Column>{{"mode", Align::left},
                                        {"step ms"},
                                        {"samples/s"},
                                        {"peak"},
                                        {"predicted"},
                                        {"reserved"},
                                        {"overlap"}});
    }
    const auto bytes = [](std::int64_t count) { return bytes_text(static_cast<double>(count)); };
    if (!row.timed()) {
      table->add_row({row.mode, row.fits ? "wrong" : "too large", "-", "-",
                      bytes(one.predicted_peak_bytes), "-", "-"});
      continue;
    }
    table->add_row({row.mode, text::fixed(row.step_ms, 1), text::fixed(row.samples_per_s, 1),
                    bytes(row.peak_bytes), bytes(one.predicted_peak_bytes),
                    row.reserved_peak_bytes > 0 ? bytes(row.reserved_peak_bytes) : "-",
                    row.recover_ms > 0.0 ? percent_text(row.overlap_ms / row.recover_ms) : "-"});
  }
  end_table();
  return text;
}

// One line for each thing that is wrong.
std::vector<std::string> complaints(const Examination& found) {
  std::vector<std::string> out;
  for (const sweep::VerifiedNetwork& one : found.verified) {
    const std::string where = one.model + ", " + std::string(name(one.precision)) + ", " +
                              std::string(name(one.arithmetic)) + " streams";
    if (!one.error.empty()) out.push_back(where + ": " + one.error);
    for (const VerifyRow& row : one.rows) {
      if (row.holds) continue;
      out.push_back(where + ", mode " + std::string(name(row.mode)) + ": " +
                    complaint(row, one.precision));
    }
  }
  out.insert(out.end(), found.errors.begin(), found.errors.end());
  for (std::string& line : out) line = line.substr(0, line.find('\n'));
  return out;
}

sweep::DoctorOptions options_of(const DoctorFlags& flags) {
  sweep::DoctorOptions options = sweep::usual_examination(chosen_device(flags.device));
  if (!flags.models.empty()) options.raced.clear();
  for (const std::string& model : flags.models) {
    models::make_model(model, {}, {.device = at::kMeta});  // throws where there is no such network
    options.raced.push_back({model});
  }
  for (const auto batch : flags.batches) expect_batch(batch);
  if (!flags.batches.empty()) options.batches = flags.batches;
  if (flags.quick) {
    options.raced.resize(1);
    options.batches.resize(1);
    options.rounds = 1;
  }
  return options;
}

int examine(const DoctorFlags& flags, const Console& console) {
  sweep::DoctorOptions options = options_of(flags);
  const JsonOutput json(flags.json, console.out);
  check_writable(flags.out);
  Examination found;
  {
    Progress progress(console.err);
    options.on_progress = [&](const std::string& doing) { progress.show(doing + " ..."); };
    found = sweep::examine(options);
  }
  const std::string report = sweep::to_json(found);
  write_file(flags.out, report + "\n");
  const std::vector<std::string> wrong = complaints(found);
  if (!json.takes_stdout()) {
    console.out
        << wrapped("device: " + found.device + "\nmachine: " + found.machine)
        << "\nfree: " << bytes_text(static_cast<double>(found.free_bytes))
        << "\n\nGradients of every mode against ordinary autograd; with exact streams\n"
           "against mode stored, bit for bit:\n\n"
        << gradients_text(found)
        << "\nTraining steps (forward and backward pass, median), peak memory measured and\n"
           "predicted, what the allocator reserved, and the share of the recomputation that\n"
           "ran beside a gradient. Mode auto keeps to the mean of the least and the most:\n\n"
        << race_text(found);
    for (const std::string& line : wrong) console.out << wrapped("wrong: " + line);
    console.out << "in " << flags.out
                << ": all of this. On a GPU nobody has tried this program yet: please send\n"
                   "us that file.\n";
  }
  json.write(nlohmann::ordered_json::parse(report));
  if (wrong.empty()) return 0;
  console.err << "pareprop: " << wrong.size() << (wrong.size() == 1 ? " check" : " checks")
              << " failed, the first is " << wrong.front() << '\n';
  return 1;
}

}  // namespace

Action add_doctor(CLI::App& app) {
  auto* command = app.add_subcommand(
      "doctor",
      "Examine a device: compare gradients, time all modes, compare memory with the prediction");
  const auto flags = std::make_shared<DoctorFlags>();
  command->add_option("--device", flags->device, kDeviceHelp);
  command
      ->add_option("--model", flags->models,
                   "Networks to time; 'pareprop models' lists all (default: one of every family on "
                   "an accelerator, two small ones on the CPU)")
      ->delimiter(',');
  command
      ->add_option("--batch", flags->batches,
                   "Batch sizes to time (default: 4 to 256 on an accelerator, 4 and 16 on the CPU)")
      ->delimiter(',');
  command->add_flag("--quick", flags->quick, "Time one network with one batch size only");
  command->add_option("--out", flags->out, "The whole result as JSON, to be sent to us")
      ->type_name("FILE");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return examine(*flags, console); };
}

}  // namespace pareprop::cli
