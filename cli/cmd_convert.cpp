#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <optional>
#include <ostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/trained_flags.h"
#include "pareprop/train/convert.h"
#include "pareprop/train/export.h"

namespace pareprop::cli {
namespace {

struct ConvertFlags {
  std::string run = "run";
  std::string weights;
  std::string out;
  bool reversible = false;
  std::optional<models::Ending> ending;  // none: sum_minus_x
  bool last = false;
  std::string json;
};

int convert(const ConvertFlags& flags, const Console& console) {
  if (!flags.reversible) {
    throw UsageError("--reversible: expected it, as there is no other conversion");
  }
  const models::Ending ending = flags.ending.value_or(models::Ending::sum_minus_x);
  if (flags.out.empty()) throw UsageError("--out: expected the name of a new folder");
  const JsonOutput json(flags.json, console.out);
  train::TrainedRun run = open_trained(flags.run, flags.weights, flags.last, "cpu");
  for (const std::string& note : run.notes) say(console.err, "convert", note);
  say(console.err, "convert", "using " + run.weights);
  run = train::made_reversible(std::move(run), ending);
  train::export_run(run, flags.out, train::ExportNames::own);
  if (!json.takes_stdout()) {
    console.out << "a reversible " << train::model_of(run.config) << " in " << flags.out
                << "; train it: pareprop train --weights " << flags.out << " --data ...\n";
  }
  json.write({{"weights", run.weights}, {"out", flags.out}, {"ending", models::name(ending)}});
  return 0;
}

}  // namespace

Action add_convert(CLI::App& app) {
  auto* command = app.add_subcommand(
      "convert", "Make a reversible network of the weights of an ordinary one, to train it on");
  const auto flags = std::make_shared<ConvertFlags>();
  add_trained_flags(*command, flags->run, flags->weights);
  command->add_flag("--reversible", flags->reversible, "What to make: a reversible network");
  command->add_option("--out", flags->out, "Folder to write; it must not be there, or be empty")
      ->type_name("FOLDER")
      ->required();
  add_word_flag(*command, "--ending", flags->ending, models::parse_ending,
                "What the pretrained layers behind the blocks read of the two streams: sum, mean, "
                "y1, y2, or sum-x (the sum minus the blocks' input) (default: sum-x)");
  command->add_flag("--last", flags->last,
                    "Use the last weights (default: the weights with the lowest validation loss)");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return convert(*flags, console); };
}

}  // namespace pareprop::cli
