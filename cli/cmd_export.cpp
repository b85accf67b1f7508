#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/trained_flags.h"
#include "pareprop/train/export.h"

namespace pareprop::cli {
namespace {

struct ExportFlags {
  TrainedFlags trained;
  std::string out;
  std::string names = "hugging-face";
  std::string json;
};

train::ExportNames names_of(const ExportFlags& flags) {
  try {
    return train::parse_export_names(flags.names);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--names: ") + error.what());
  }
}

int export_trained(const ExportFlags& flags, const Console& console) {
  const train::ExportNames names = names_of(flags);
  if (flags.out.empty()) throw UsageError("--out: expected the name of a new folder");
  const JsonOutput json(flags.json, console.out);
  const train::TrainedRun run = open_trained(flags.trained, {});
  for (const std::string& note : run.notes) say(console.err, "export", note);
  say(console.err, "export", "using " + run.weights);
  train::export_run(run, flags.out, names);
  if (const auto why = train::lacks_tokenizer(run); !why.empty()) {
    say(console.err, "export", "no tokenizer was written: " + why);
  }
  if (!json.takes_stdout()) console.out << "exported to " << flags.out << "\n";
  json.write({{"weights", run.weights}, {"out", flags.out}, {"names", flags.names}});
  return 0;
}

}  // namespace

Action add_export(CLI::App& app) {
  auto* command = app.add_subcommand(
      "export", "Write a trained network as a folder that Hugging Face transformers or timm loads");
  const auto flags = std::make_shared<ExportFlags>();
  add_trained_flags(*command, flags->trained);
  command->add_option("--out", flags->out, "Folder to write; it must not be there, or be empty")
      ->type_name("FOLDER")
      ->required();
  command->add_option("--names", flags->names,
                      "Whose names the weights get: hugging-face, timm, or own (pareprop's, as the "
                      "folder of a run)");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return export_trained(*flags, console); };
}

}  // namespace pareprop::cli
