#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/models/registry.h"
#include "pareprop/verify/verify.h"

namespace pareprop::cli {
namespace {

struct Flags {
  std::string model = "vit_tiny";
  models::Overrides overrides;
  std::int64_t batch = 2;
  std::string precision = "fp32";
  bool exact = false;
  std::string modes;  // separated by commas
  std::uint64_t seed = 0;
  int threads = 0;
  std::string json;
};

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

std::string every_mode() {
  std::vector<std::string> names;
  for (Mode mode : all_modes()) names.emplace_back(name(mode));
  return join(names, ",");
}

std::vector<Mode> parse_modes(const std::string& text) {
  std::vector<Mode> modes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    modes.push_back(parse_mode(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return modes;
}

VerifyOptions checked_options(const Flags& flags) {
  expect_at_least("--batch", 1, flags.batch);
  expect_at_least("--threads", 0, flags.threads);
  expect_probability("--dropout", flags.overrides.dropout.value_or(0.0));
  expect_probability("--drop-path", flags.overrides.drop_path.value_or(0.0));
  return {.modes = parse_modes(flags.modes),
          .batch = flags.batch,
          .precision = parse_precision(flags.precision),
          .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
          .seed = flags.seed};
}

// Why a row does not hold, in words; empty when it does.
std::string complaint(const VerifyRow& row, double tolerance) {
  if (row.holds) return "";
  if (!row.error.empty()) return row.error;
  if (row.missing_gradients > 0) {
    return std::to_string(row.missing_gradients) + " parameters got no gradient";
  }
  if (!std::isfinite(row.max_rel_error)) {
    return "max_rel_error is " + error_text(row.max_rel_error) +
           ": a gradient is not finite, or has another shape";
  }
  if (row.max_rel_error > tolerance) {
    return "max_rel_error " + error_text(row.max_rel_error) + " is above the tolerance " +
           error_text(tolerance);
  }
  return "gradients do not have the bits of stored training";
}

nlohmann::ordered_json json_row(const VerifyRow& row, double tolerance) {
  nlohmann::ordered_json json{{"mode", name(row.mode)},
                              {"max_rel_error", row.max_rel_error},
                              {"bit_identical", row.bit_identical},
                              {"missing_gradients", row.missing_gradients},
                              {"drift", row.drift},
                              {"holds", row.holds}};
  if (!row.holds) json["error"] = complaint(row, tolerance);
  return json;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

int verify_model(const Flags& flags, const Console& console) {
  const VerifyOptions options = checked_options(flags);
  const JsonOutput json(flags.json, console.out);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const auto model = models::make_model(
      flags.model, flags.overrides, {.dtype = stream_dtype(options.precision), .seed = flags.seed});
  int depth = 0;
  for (const Stack& stack : model->stacks()) depth += stack->depth();

  std::vector<VerifyRow> rows;
  {
    Progress progress(console.err);
    progress.show("one training step of " + flags.model + " in each mode ...");
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
    json_rows.push_back(json_row(row, tolerance));
    if (row.holds) continue;
    broken.emplace_back(name(row.mode));
    if (reason.empty()) reason = first_line(complaint(row, tolerance));
  }
  if (!json.takes_stdout()) {
    console.out << table.text() << "\n"
                << flags.model << ", " << depth << " blocks, batch " << options.batch << ", "
                << name(options.precision) << ", " << name(options.arithmetic)
                << " streams.\nGradients of one training step against "
                << (flags.exact ? "mode stored, bit for bit"
                                : "ordinary autograd (tolerance " + error_text(tolerance) + ")")
                << ".\n";
  }
  json.write({{"model", flags.model},
              {"depth", depth},
              {"batch", options.batch},
              {"precision", name(options.precision)},
              {"arithmetic", name(options.arithmetic)},
              {"seed", options.seed},
              {"threads", at::get_num_threads()},
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
  const auto flags = std::make_shared<Flags>();
  flags->modes = every_mode();
  command->add_option("--model", flags->model, "Which one; 'pareprop models' lists them");
  command
      ->add_option("--depth", flags->overrides.depths,
                   "Blocks, or those of each stage separated by commas (default: the model's)")
      ->delimiter(',');
  command->add_option("--width", flags->overrides.width, "Channels (default: the model's)");
  command->add_option("--image-size", flags->overrides.image_size,
                      "Pixels of a side (default: the model's)");
  command->add_option("--seq-len", flags->overrides.length,
                      "Tokens of a sequence, text models (default: the model's)");
  command->add_option("--vocabulary", flags->overrides.vocabulary,
                      "Token ids, text models (default: the model's)");
  command->add_option("--batch", flags->batch, "Samples");
  command->add_option("--precision", flags->precision, "Of the branches: fp32, bf16 or fp64");
  command->add_flag("--exact", flags->exact,
                    "Fixed-point streams, recovered bit for bit (default: off)");
  command->add_option("--dropout", flags->overrides.dropout, "Probability (default: the model's)");
  command->add_option("--drop-path", flags->overrides.drop_path,
                      "Probability at the last block (default: the model's)");
  command->add_option("--modes", flags->modes, "Which modes, separated by commas");
  command->add_option("--seed", flags->seed, "Of weights, data and dropout");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return verify_model(*flags, console); };
}

}  // namespace pareprop::cli
