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
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/text/fixed.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/step_svg.h"
#include "pareprop/trace/summary.h"
#include "pareprop/train/record_step.h"

namespace pareprop::cli {
namespace {

struct TraceFlags {
  ModelFlags network;
  std::string mode = "pareprop";
  std::int64_t batch = 4;
  std::string precision = "fp32";
  bool exact = false;
  int steps = 3;
  std::uint64_t seed = 0;
  int threads = 0;
  std::string device = "auto";
  std::string out = "trace.json";
  std::string svg;
  std::string json;
};

// An ordinary network has nothing to recover: unless told otherwise, it is stored.
Mode mode_of(const TraceFlags& flags, bool given) {
  return !given && flags.network.overrides.plain ? Mode::stored : parse_mode(flags.mode);
}

train::RecordOptions checked_options(const TraceFlags& flags) {
  expect_batch(flags.batch);
  expect_at_least("--steps", 1, flags.steps);
  expect_threads(flags.threads);
  if (flags.out.empty()) throw UsageError("--out: expected the name of a file");
  return {.batch = flags.batch,
          .precision = parse_precision(flags.precision),
          .arithmetic = flags.exact ? Arithmetic::exact : Arithmetic::floating,
          .steps = flags.steps,
          .seed = flags.seed};
}

std::string title_of(const TraceFlags& flags, Mode mode, const train::RecordOptions& options) {
  const std::string parts =
      options.parts > 1 ? " in " + std::to_string(options.parts) + " parts" : "";
  return title(flags.network) + ", " + std::string(name(mode)) + ", batch " +
         std::to_string(options.batch) + parts + ", " + std::string(name(options.precision)) +
         (flags.exact ? ", exact streams" : "");
}

std::string milliseconds(double seconds) { return text::fixed(seconds * 1e3, 1) + " ms"; }

std::string overlap_table(const StepSummary& summary) {
  Table table({{"stage", Align::left}, {"recover"}, {"beside a gradient"}, {"share"}});
  const auto add = [&](const std::string& stage, const Overlap& overlap) {
    table.add_row({stage, milliseconds(overlap.recover), milliseconds(overlap.beside),
                   overlap.recover > 0.0 ? percent_text(overlap.share()) : "-"});
  };
  for (std::size_t i = 0; i < summary.stacks.size(); ++i) {
    add(std::to_string(i + 1), summary.stacks[i]);
  }
  if (summary.stacks.size() > 1) add("all", summary.overlap);
  return table.text();
}

void report(const TraceFlags& flags, const train::RecordedStep& traced, const StepSummary& summary,
            std::ostream& out) {
  out << overlap_table(summary);
  std::string kinds;
  for (const auto& [kind, seconds] : summary.kinds) {
    kinds += (kinds.empty() ? " " : ", ") + std::string(name(kind)) + " " + milliseconds(seconds);
  }
  out << "\n"
      << wrapped(traced.trace.title + ", " + std::to_string(at::get_num_threads()) + " threads")
      << "\n"
      << wrapped("step " + milliseconds(summary.seconds) + ":" + kinds);
  const memory::Usage& memory = traced.memory;
  const auto bytes = [](std::int64_t count) { return bytes_text(static_cast<double>(count)); };
  out << "\npeak " << bytes(memory.total_peak) << ", activations " << bytes(memory.activation_peak)
      << (memory.reserved_peak > 0 ? ", reserved " + bytes(memory.reserved_peak) : "") << "\n"
      << "wrote " << flags.out << ": the trace, for ui.perfetto.dev or chrome://tracing\n";
  if (!flags.svg.empty()) out << "wrote " << flags.svg << ": the same as a picture\n";
}

int trace_model(const TraceFlags& flags, bool mode_given, const Console& console) {
  const Mode mode = mode_of(flags, mode_given);
  train::RecordOptions options = checked_options(flags);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const c10::Device device = chosen_device(flags.device);
  const JsonOutput json(flags.json, console.out);
  check_writable(flags.out);
  if (!flags.svg.empty()) check_writable(flags.svg);

  const plan::StepShape shape{.batch = options.batch,
                              .device = device,
                              .precision = options.precision,
                              .arithmetic = options.arithmetic};
  expect_to_fit(flags.network, {.shape = shape, .modes = {mode}, .cuts_batches = true});
  const auto model =
      make_model(flags.network,
                 {.dtype = stream_dtype(options.precision), .device = device, .seed = flags.seed});
  if (mode == Mode::automatic) {
    const plan::JointPlan plan = plan_for_free_memory(flags.network, shape, *model);
    options.plan = plan.micro.step;
    options.parts = plan.parts;
  } else {
    options.plan = model->plan_of(mode);
  }
  options.title = title_of(flags, mode, options);
  const train::RecordedStep traced = train::record_step(*model, options);
  const StepSummary summary = summarise(traced.trace);
  write_file(flags.out, chrome_trace(traced.trace));
  if (!flags.svg.empty()) write_file(flags.svg, step_svg(traced.trace));
  if (!json.takes_stdout()) report(flags, traced, summary, console.out);

  nlohmann::ordered_json values = {{"model", flags.network.model},
                                   {"plain", flags.network.overrides.plain},
                                   {"mode", name(mode)},
                                   {"precision", name(options.precision)},
                                   {"arithmetic", name(options.arithmetic)},
                                   {"batch", options.batch},
                                   {"parts", options.parts},
                                   {"threads", at::get_num_threads()},
                                   {"device", device.str()},
                                   {"loss", traced.loss},
                                   {"activation_peak_bytes", traced.memory.activation_peak},
                                   {"peak_bytes", traced.memory.total_peak},
                                   {"reserved_peak_bytes", traced.memory.reserved_peak}};
  values.update(nlohmann::ordered_json::parse(to_json(summary)));
  json.write(values);
  return 0;
}

}  // namespace

Action add_trace(CLI::App& app) {
  auto* command = app.add_subcommand(
      "trace",
      "Record one training step for Perfetto: what ran when, on which lane, and the memory");
  const auto flags = std::make_shared<TraceFlags>();
  add_model_flags(*command, flags->network);
  const auto* mode =
      command->add_option("--mode", flags->mode,
                          "Mode of the step: stored, checkpoint, reprop, pareprop, or auto: the "
                          "fastest way that fits in the free memory, in parts of the batch where "
                          "that is faster, as 'train' does; with --plain the default is stored");
  command->add_option("--batch", flags->batch, "Samples in a batch");
  command->add_option("--precision", flags->precision,
                      "Precision of the branches: fp32, bf16 or fp64");
  command->add_flag("--exact", flags->exact,
                    "Use fixed-point streams, which are recovered bit for bit (default: off)");
  command->add_option("--steps", flags->steps, "Steps to run; the last one is recorded");
  add_seed_flag(*command, flags->seed, "Random seed for weights, data and dropout");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--out", flags->out, "File for the trace, as JSON")->type_name("FILE");
  command->add_option("--svg", flags->svg, "File for a picture of the step (default: none)")
      ->type_name("FILE");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags, mode](const Console& console) {
    return trace_model(*flags, mode->count() > 0, console);
  };
}

}  // namespace pareprop::cli
