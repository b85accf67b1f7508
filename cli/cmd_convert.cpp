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
#include "pareprop/models/overrides.h"
#include "pareprop/train/convert.h"
#include "pareprop/train/export.h"

namespace pareprop::cli {
namespace {

struct ConvertFlags {
  TrainedFlags trained;
  std::string out;
  bool reversible = false;
  std::int64_t classes = 0;
  std::uint64_t seed = 0;
  std::optional<models::Ending> ending;  // none: sum_minus_x
  std::string json;
};

int convert(const ConvertFlags& flags, const Console& console) {
  if (!flags.reversible) {
    throw UsageError("--reversible: expected it, as there is no other conversion");
  }
  if (flags.classes != 0) expect_between("--classes", 1, models::kMostClasses, flags.classes);
  const models::Ending ending = flags.ending.value_or(models::Ending::sum_minus_x);
  if (flags.out.empty()) throw UsageError("--out: expected the name of a new folder");
  const JsonOutput json(flags.json, console.out);
  train::TrainedRun run =
      open_trained(flags.trained, {.new_head = true, .classes = flags.classes, .seed = flags.seed});
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
  add_trained_flags(*command, flags->trained, "ending");
  command->add_flag("--reversible", flags->reversible, "What to make: a reversible network");
  command->add_option("--out", flags->out, "Folder to write; it must not be there, or be empty")
      ->type_name("FOLDER")
      ->required();
  command
      ->add_option("--classes", flags->classes,
                   "Give weights of --weights a new head for so many classes, where they have "
                   "none or one for others; 0: they keep theirs")
      ->needs(command->get_option("--weights"));
  add_seed_flag(*command, flags->seed, "Random seed of a new head");
  add_word_flag(*command, "--ending", flags->ending, models::parse_ending,
                "What the pretrained layers behind the blocks read of the two streams: sum, mean, "
                "y1, y2, or sum-x (the sum minus the blocks' input) (default: sum-x)");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return convert(*flags, console); };
}

}  // namespace pareprop::cli
