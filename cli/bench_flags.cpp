#include "cli/bench_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "pareprop/sweep/sweep_file.h"
#include "pareprop/text/units.h"

namespace pareprop::cli {
namespace {

// "2+2+6+2"
std::vector<int> depths_of(const std::string& text) {
  std::vector<int> depths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('+', begin), text.size());
    const char* const last = text.data() + end;
    const auto [rest, error] = std::from_chars(text.data() + begin, last, depths.emplace_back());
    if (error != std::errc() || rest != last) {
      throw UsageError(
          "--depth: expected a number of blocks, or one for each stage as in 2+2+6+2, got '" +
          text + "'");
    }
    begin = end + 1;
  }
  return depths;
}

template <typename Value, typename Parse>
std::vector<Value> parsed(const char* flag, const std::vector<std::string>& texts, Parse parse) {
  std::vector<Value> out;
  for (const std::string& text : texts) {
    try {
      out.push_back(parse(text));
    } catch (const std::invalid_argument& error) {
      throw UsageError(std::string(flag) + ": " + error.what());
    }
  }
  return out;
}

sweep::Grid grid_of(const BenchFlags& flags) {
  for (const auto batch : flags.batches) expect_batch(batch);
  for (const auto threads : flags.threads) expect_threads(threads);
  check_changes(flags.change);
  for (const auto size : flags.image_sizes) check_changes({.image_size = size});
  for (const auto length : flags.seq_lens) check_changes({.length = length});
  return {.models = flags.models,
          .depths = parsed<std::vector<int>>("--depth", flags.depths, depths_of),
          .image_sizes = flags.image_sizes,
          .seq_lens = flags.seq_lens,
          .batches = flags.batches,
          .precisions = parsed<Precision>("--precision", flags.precisions, parse_precision),
          .threads = flags.threads,
          .modes = parsed<Mode>("--modes", flags.modes, parse_mode),
          .budgets = parsed<std::int64_t>("--budget", flags.budgets, text::parse_byte_size),
          .change = flags.change,
          .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
          .seed = flags.seed};
}

}  // namespace

void add_bench_flags(CLI::App& command, BenchFlags& flags) {
  const auto list = [&](const char* flag, auto& into, const std::string& help) {
    command.add_option(flag, into, help)->delimiter(',');
  };
  list("--model", flags.models, "Networks; 'pareprop models' lists all");
  list("--depth", flags.depths,
       "Number of blocks, or of each stage as in 2+2+6+2 (default: the model's)");
  list("--image-size", flags.image_sizes,
       "Height and width of images in pixels (default: the model's)");
  list("--seq-len", flags.seq_lens, "Tokens in a sequence, for text models (default: the model's)");
  list("--batch", flags.batches, "Samples in a batch");
  list("--precision", flags.precisions, "Precision of the branches: fp32, bf16 or fp64");
  list("--threads", flags.threads, "CPU threads; 0: all cores");
  command.add_option("--device", flags.device, kDeviceHelp);
  list("--modes", flags.modes, modes_help());
  list("--budget", flags.budgets,
       "Bytes that a step may take, such as 200MiB; each one adds a row in mode auto (default: "
       "none)");
  add_change_flags(command, flags.change);
  command.add_flag("--exact", flags.exact,
                   "Use fixed-point streams, which are recovered bit for bit (default: off)");
  add_seed_flag(command, flags.seed, "Random seed for weights, data and dropout");
  const auto of_cases = command.get_options(
      [&](const CLI::Option* option) { return option != command.get_help_ptr(); });
  auto* sweep =
      command
          .add_option("--sweep", flags.sweep,
                      "JSON file with the cases, instead of the flags above (default: none)")
          ->type_name("FILE");
  // Not Option::excludes, which would say so in --help for each of them.
  command.parse_complete_callback([sweep, of_cases] {
    for (const CLI::Option* option : of_cases) {
      if (*sweep && *option) throw CLI::ExcludesError(sweep->get_name(), option->get_name());
    }
  });
  command.add_option("--rounds", flags.rounds,
                     "Turns of each mode (default: what --sweep says, or 5)");
  command.add_option("--steps", flags.steps,
                     "Steps in each turn (default: what --sweep says, or 2)");
  command
      .add_option(
          "--out", flags.out,
          "Append a JSON line for each row to FILE when its case ends; cases that are already "
          "in FILE are not run again (default: none)")
      ->type_name("FILE");
  command.add_option("--json", flags.json, kJsonHelp)->type_name("FILE");
}

sweep::Sweep sweep_of(const BenchFlags& flags) {
  sweep::Sweep sweep;
  if (flags.sweep.empty()) {
    sweep.rows.push_back(grid_of(flags));
  } else {
    sweep = sweep::read_sweep(flags.sweep);
  }
  if (flags.rounds) expect_at_least("--rounds", 1, *flags.rounds);
  if (flags.steps) expect_at_least("--steps", 1, *flags.steps);
  if (flags.rounds) sweep.rounds = *flags.rounds;
  if (flags.steps) sweep.steps = *flags.steps;
  sweep.device = chosen_device(flags.device);
  return sweep;
}

}  // namespace pareprop::cli
