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
#include "cli/trained_flags.h"
#include "cli/units.h"
#include "pareprop/models/roberta.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/evaluate.h"
#include "pareprop/train/pretrained_run.h"
#include "pareprop/train/score_file.h"

namespace pareprop::cli {
namespace {

struct EvalFlags {
  TrainedFlags trained;
  std::string data;
  std::string input, scores;
  std::int64_t batch = 64;
  int threads = 0;
  std::string device = "auto";
  std::string json;
};

int score(const EvalFlags& flags, const train::TrainedRun& run, const JsonOutput& json,
          const Console& console) {
  const std::int64_t count = train::score_file(run, flags.input, flags.scores, flags.batch);
  if (!json.takes_stdout()) {
    console.out << "scores of " << count << " inputs in " << flags.scores << "\n";
  }
  json.write({{"weights", run.weights}, {"inputs", count}, {"scores", flags.scores}});
  return 0;
}

bool is_text(const train::TrainedRun& run) {
  return dynamic_cast<const models::ImageModel*>(run.model.get()) == nullptr;
}

int evaluate_run(const EvalFlags& flags, const Console& console) {
  expect_batch(flags.batch);
  expect_threads(flags.threads);
  if (flags.input.empty() != flags.scores.empty()) {
    throw UsageError("--input: it goes with --scores, the file that the scores are written to");
  }
  if (flags.threads > 0) at::set_num_threads(flags.threads);
  const JsonOutput json(flags.json, console.out);
  train::TrainedRun run = open_trained(flags.trained, {.device = chosen_device(flags.device)});
  for (const std::string& note : run.notes) say(console.err, "eval", note);
  say(console.err, "eval", "using " + run.weights);
  if (!flags.input.empty()) return score(flags, run, json, console);
  if (models::classifies_texts(*run.model)) {
    throw UsageError("--input: " + run.weights +
                     " give classes of whole texts, and no data set here has those: expected a "
                     "file of input_ids, with --scores");
  }
  expect_one_class(run);
  if (!flags.data.empty()) {
    run.config.data = flags.data;
  } else if (!flags.trained.weights.empty()) {
    throw UsageError("--data: expected the data to evaluate on, because --weights is given");
  }
  run.config.batch = flags.batch;
  if (is_text(run)) run.config.tokenizer = run.tokenizer_folder.string();
  if (const bool text = train::names_text(run.config.data); text != is_text(run)) {
    throw std::invalid_argument("the data '" + run.config.data + "' is " +
                                (text ? "text" : "images") + ", but the run was trained on " +
                                (text ? "images" : "text") + ": choose other data with --data");
  }
  if (const auto why = train::lacks_tokenizer(run); !why.empty()) throw std::invalid_argument(why);
  train::TrainingData data = train::open_data(run.config);
  if (data.images) {
    train::put_classes_in_order(run, data.class_names(), run.config.data);
    if (run.knows_input) data.images->augment = run.augment;
  }
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
  json.write({{"run", flags.trained.weights.empty() ? flags.trained.run : flags.trained.weights},
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
      "eval",
      "Compute the loss and accuracy of a trained network on validation data, or the scores of "
      "given inputs");
  const auto flags = std::make_shared<EvalFlags>();
  add_trained_flags(*command, flags->trained);
  command->add_option("--data", flags->data,
                      "Data set, as in 'pareprop train' (default: the run's)");
  command
      ->add_option("--input", flags->input,
                   "Safetensors file with pixel_values, or input_ids and attention_mask: compute "
                   "their scores instead (default: none)")
      ->type_name("FILE");
  command
      ->add_option("--scores", flags->scores,
                   "Safetensors file that the scores of --input are written to, as logits "
                   "(default: none)")
      ->type_name("FILE");
  command->add_option("--batch", flags->batch, "Samples in a batch");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all cores");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return evaluate_run(*flags, console); };
}

}  // namespace pareprop::cli
