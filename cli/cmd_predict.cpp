#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/train/predict.h"

namespace pareprop::cli {
namespace {

struct PredictFlags {
  std::string run = "run";
  std::vector<std::string> inputs;
  int top = 5;
  bool last = false;
  std::string device = "auto";
  std::string json;
};

constexpr std::size_t kInputColumns = 40, kGuessColumns = 24;

int predict(const PredictFlags& flags, const Console& console) {
  expect_between("--top", 1, 1000, flags.top);
  const JsonOutput json(flags.json, console.out);
  const train::TrainedRun run =
      train::load_run(flags.run, flags.last ? train::WhichWeights::last : train::WhichWeights::best,
                      chosen_device(flags.device));
  say(console.err, "predict", "using " + run.weights);
  Table table({{"input", Align::left, kInputColumns},
               {"guess", Align::left, kGuessColumns},
               {"probability"}});
  auto rows = nlohmann::ordered_json::array();
  const auto add = [&](const std::string& input, const std::vector<train::Guess>& guesses) {
    auto listed = nlohmann::ordered_json::array();
    for (const train::Guess& guess : guesses) {
      // Tokens begin with spaces, or are line ends.
      const std::string shown =
          run.tokenizer ? "\"" + text::printable(guess.name) + "\"" : guess.name;
      table.add_row({listed.empty() ? input : "", shown, percent_text(guess.probability)});
      listed.push_back({{"name", guess.name}, {"probability", guess.probability}});
    }
    rows.push_back({{"input", input}, {"guesses", std::move(listed)}});
  };
  for (const std::string& input : flags.inputs) {
    if (!run.tokenizer) {
      add(input, predict_image(run, input, flags.top));
      continue;
    }
    for (const auto& guesses : predict_masks(run, input, flags.top)) add(input, guesses);
  }
  if (!json.takes_stdout()) console.out << table.text();
  json.write({{"weights", run.weights}, {"rows", std::move(rows)}});
  return 0;
}

}  // namespace

Action add_predict(CLI::App& app) {
  auto* command = app.add_subcommand(
      "predict", "Classify images, or guess the words at <mask> in a text, with a trained network");
  const auto flags = std::make_shared<PredictFlags>();
  command->add_option("--run", flags->run, "Folder of the run")->type_name("FOLDER");
  command->add_option("inputs", flags->inputs, "Image files, or texts with <mask>")->required();
  command->add_option("--top", flags->top, "Number of guesses for each input");
  command->add_flag("--last", flags->last,
                    "Use the last weights (default: the weights with the lowest validation loss)");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return predict(*flags, console); };
}

}  // namespace pareprop::cli
