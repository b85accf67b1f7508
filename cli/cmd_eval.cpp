#include <ATen/Parallel.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/progress.h"
#include "cli/units.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/run_folder.h"
#include "pareprop/train/trained_run.h"

namespace pareprop::cli {
namespace {

struct EvalFlags {
  std::string run = "run";
  std::string data;
  std::int64_t batch = 64;
  int threads = 0;
  bool last = false;
  std::string device = "auto";
  std::string json;
};

int evaluate_run(const EvalFlags& flags, const Console& console) {
  expect_batch(flags.batch);
  expect_threads(flags.threads);
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const JsonOutput json(flags.json, console.out);
  train::TrainedRun run =
      train::load_run(flags.run, flags.last ? train::WhichWeights::last : train::WhichWeights::best,
                      chosen_device(flags.device));
  say(console.err, "eval", "using " + run.weights);
  if (!flags.data.empty()) run.config.data = flags.data;
  run.config.batch = flags.batch;
  if (run.tokenizer) run.config.tokenizer = train::tokenizer_folder(flags.run).string();
  if (const bool text = train::names_text(run.config.data); text != run.tokenizer.has_value()) {
    throw std::invalid_argument("the data '" + run.config.data + "' is " +
                                (text ? "text" : "images") + ", but the run was trained on " +
                                (text ? "images" : "text") + ": choose other data with --data");
  }
  train::TrainingData data = train::open_data(run.config);
  if (data.class_names() != run.class_names) {
    throw std::invalid_argument("the classes of " + run.config.data +
                                " differ from the classes of the run; choose other data with "
                                "--data");
  }
  if (data.images) data.images->augment = run.augment;
  const auto batches = train::make_test_batches(run.config, data, *run.model, {});
  const auto group = distributed::make_process_group({});
  train::Evaluation found;
  {
    Progress progress(console.err);
    found = train::evaluate(
        *run.model, batches.test, *group, {.on_batch = [&](std::int64_t done, std::int64_t all) {
          progress.show("batch " + std::to_string(done) + " of " + std::to_string(all));
          return false;
        }});
  }
  const auto skipped = batches.skipped();
  if (!skipped.empty()) {
    say(console.err, "eval", train::left_out_text(skipped, run.config.data));
  }
  if (found.rows == 0) {
    throw std::runtime_error("nothing was evaluated: no validation data could be read from '" +
                             run.config.data + "'");
  }
  if (!json.takes_stdout()) {
    console.out << "loss " << text::fixed(found.loss, 4) << ", accuracy "
                << percent_text(found.accuracy) << " of " << found.rows
                << (data.text ? " masked tokens\n" : " images\n");
  }
  json.write({{"run", flags.run},
              {"data", run.config.data},
              {"weights", run.weights},
              {"loss", found.loss},
              {"accuracy", found.accuracy},
              {"rows", found.rows},
              {"skipped", skipped.size()}});
  return 0;
}

}  // namespace

Action add_eval(CLI::App& app) {
  auto* command = app.add_subcommand(
      "eval", "Compute the loss and accuracy of a trained network on validation data");
  const auto flags = std::make_shared<EvalFlags>();
  command->add_option("--run", flags->run, "Folder of the run")->type_name("FOLDER");
  command->add_option("--data", flags->data,
                      "Data set, as in 'pareprop train' (default: the run's)");
  command->add_option("--batch", flags->batch, "Samples in a batch");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command->add_flag("--last", flags->last,
                    "Use the last weights (default: the weights with the lowest validation loss)");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return evaluate_run(*flags, console); };
}

}  // namespace pareprop::cli
