#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>
#include <ostream>

#include "cli/auto_plan.h"
#include "cli/command.h"
#include "cli/demo_report.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/progress.h"
#include "pareprop/models/registry.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/lane_svg.h"

namespace pareprop::cli {
namespace {

namespace fs = std::filesystem;

struct DemoFlags {
  DigitsTraining training;
  std::string precision = "fp32";
  int threads = 0;
  std::string device = "auto";
  std::string out;
  std::string json;
};

DigitsTraining checked_training(const DemoFlags& flags) {
  expect_at_least("--steps", 1, flags.training.steps);
  expect_batch(flags.training.batch);
  expect_threads(flags.threads);
  if (flags.training.batch > kDigitsTrained) {
    throw UsageError("--batch: expected at most the " + std::to_string(kDigitsTrained) +
                     " images of the training data, got " + std::to_string(flags.training.batch));
  }
  DigitsTraining training = flags.training;
  training.precision = parse_precision(flags.precision);
  training.device = chosen_device(flags.device);
  return training;
}

struct PictureFiles {
  fs::path svg, trace;
};

PictureFiles prepare_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::runtime_error("cannot create the folder '" + folder.string() +
                             "': " + error.message() + "; choose another for --out");
  }
  const PictureFiles files{folder / "lanes.svg", folder / "trace.json"};
  check_writable(files.svg);
  check_writable(files.trace);
  return files;
}

std::vector<VerifyRow> verify_digits(const DigitsTraining& training) {
  const auto model = models::make_model(kDigitsModel, {},
                                        {.dtype = stream_dtype(training.precision),
                                         .device = training.device,
                                         .seed = training.seed});
  constexpr std::int64_t kBatch = 8;
  return verify(*model, {.plans = {plan_of_a_mixture({.model = kDigitsModel, .overrides = {}},
                                                     {.batch = kBatch,
                                                      .device = training.device,
                                                      .precision = training.precision,
                                                      .optimizer_state = {}})},
                         .batch = kBatch,
                         .precision = training.precision,
                         .seed = training.seed});
}

DemoReport train_all(DigitsTraining training, Progress& progress) {
  progress.show("comparing gradients ...");
  DemoReport report;
  for (const VerifyRow& row : verify_digits(training)) {
    training.mode = row.mode;
    // Half of what the first mode, which stores everything, needed.
    if (!report.runs.empty()) {
      training.activation_budget = report.runs.front().result.activation_peak / 2;
    }
    const std::string what = "mode " + std::string(name(row.mode)) + ": step ";
    const std::string of = " of " + std::to_string(training.steps);
    report.runs.push_back(
        {training,
         train_digits(training, [&](int step) { progress.show(what + std::to_string(step) + of); }),
         row});
  }
  progress.clear();
  return report;
}

int run_demo(const DemoFlags& flags, const Console& console) {
  const DigitsTraining training = checked_training(flags);
  const JsonOutput json(flags.json, console.out);
  PictureFiles files;
  if (!flags.out.empty()) files = prepare_folder(flags.out);

  if (flags.threads > 0) at::set_num_threads(flags.threads);
  Progress progress(console.err);
  const DemoReport report = train_all(training, progress);

  if (!json.takes_stdout()) write_raw(console.out, report.text(terminal_of(console.out)));
  json.write(report.json());
  if (!flags.out.empty()) {
    const DigitsResult& parallel = report.find(Mode::pareprop)->result;
    write_file(files.svg, lane_svg(parallel.graph, parallel.timeline,
                                   "Backward pass of vit_digits in mode pareprop"));
    StepTrace trace{.title = "backward", .stacks = 1, .begin = parallel.timeline.begin()};
    add_backward(trace, parallel.graph, parallel.timeline, 0, StepSpan::kNone);
    trace.end = parallel.timeline.end();
    write_file(files.trace, chrome_trace(trace));
    if (!json.takes_stdout()) {
      console.out << "\nwrote " << files.svg.string() << ": this picture, for a browser\nwrote "
                  << files.trace.string() << ": the trace, for ui.perfetto.dev\n";
    }
  }
  if (!report.gradients_hold() || !report.same_loss()) {
    const char* const what = report.gradients_hold() ? "losses" : "gradients";
    console.err << "pareprop: demo: expected the same " << what
                << " in every mode, but they differ (see the table); run 'pareprop verify --model "
                << kDigitsModel << "' for details\n";
    return 1;
  }
  return 0;
}

}  // namespace

Action add_demo(CLI::App& app) {
  auto* command = app.add_subcommand(
      "demo", "Train a small vision transformer on handwritten digits in every mode");
  const auto flags = std::make_shared<DemoFlags>();
  command->add_option("--steps", flags->training.steps, "Training steps in each mode");
  command->add_option("--batch", flags->training.batch, "Images in a step");
  command->add_option("--precision", flags->precision,
                      "Precision of the branches: fp32, bf16 or fp64");
  command
      ->add_option("--out", flags->out,
                   "Folder for lanes.svg and trace.json; it is created if missing (default: none)")
      ->type_name("DIR");
  add_seed_flag(*command, flags->training.seed,
                "Random seed for the weights and the order of images");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return run_demo(*flags, console); };
}

}  // namespace pareprop::cli
