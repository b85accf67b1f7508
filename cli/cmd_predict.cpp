#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/printable_stream.h"
#include "cli/table.h"
#include "cli/trained_flags.h"
#include "cli/units.h"
#include "pareprop/data/images/image_folder.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/roberta.h"
#include "pareprop/train/predict.h"

namespace pareprop::cli {
namespace {

struct PredictFlags {
  TrainedFlags trained;
  std::vector<std::string> inputs;
  int top = 5;
  std::string device = "auto";
  std::string json;
};

constexpr std::size_t kInputColumns = 40, kGuessColumns = 24;

// Images that cannot be read are told and left out.
template <typename Add>
void predict_folder(const train::TrainedRun& run, const std::string& folder, int top,
                    const Console& console, const Add& add) {
  const auto files = data::image_files(folder);
  std::size_t read = 0;
  for (const auto& file : files) {
    try {
      add(file.string(), predict_image(run, file, top));
      ++read;
    } catch (const std::runtime_error& error) {
      say(console.err, "predict", std::string("left out: ") + error.what());
    }
  }
  if (read == 0) {
    throw std::runtime_error(folder +
                             " has no image that can be read; expected .jpg, .jpeg or "
                             ".png files");
  }
}

int predict(const PredictFlags& flags, const Console& console) {
  expect_between("--top", 1, 1000, flags.top);
  const JsonOutput json(flags.json, console.out);
  const train::TrainedRun run =
      open_trained(flags.trained, {.device = chosen_device(flags.device)});
  for (const std::string& note : run.notes) say(console.err, "predict", note);
  say(console.err, "predict", "using " + run.weights);
  Table table({{"input", Align::left, kInputColumns},
               {"guess", Align::left, kGuessColumns},
               {"probability"}});
  auto rows = nlohmann::ordered_json::array();
  const bool text = dynamic_cast<const models::ImageModel*>(run.model.get()) == nullptr;
  const bool guesses_words = text && !models::classifies_texts(*run.model);
  const auto add = [&](const std::string& input, const std::vector<train::Guess>& guesses) {
    auto listed = nlohmann::ordered_json::array();
    for (const train::Guess& guess : guesses) {
      // Tokens begin with spaces, or are line ends.
      const std::string shown =
          guesses_words ? "\"" + text::printable(guess.name) + "\"" : guess.name;
      table.add_row({listed.empty() ? input : "", shown, percent_text(guess.probability)});
      listed.push_back({{"name", guess.name}, {"probability", guess.probability}});
    }
    rows.push_back({{"input", input}, {"guesses", std::move(listed)}});
  };
  for (const std::string& input : flags.inputs) {
    std::error_code ignored;
    if (text) {
      for (const auto& guesses : predict_text(run, input, flags.top)) add(input, guesses);
    } else if (std::filesystem::is_directory(input, ignored)) {
      predict_folder(run, input, flags.top, console, add);
    } else {
      add(input, predict_image(run, input, flags.top));
    }
  }
  if (!json.takes_stdout()) console.out << table.text();
  json.write({{"weights", run.weights}, {"rows", std::move(rows)}});
  return 0;
}

}  // namespace

Action add_predict(CLI::App& app) {
  auto* command = app.add_subcommand(
      "predict",
      "Classify images or texts, or guess the words at <mask> in a text, with a trained network");
  const auto flags = std::make_shared<PredictFlags>();
  add_trained_flags(*command, flags->trained);
  command
      ->add_option("inputs", flags->inputs,
                   "Image files, folders of images, texts to classify, or texts with <mask>")
      ->required();
  command->add_option("--top", flags->top, "Number of guesses for each input");
  command->add_option("--device", flags->device, kDeviceHelp);
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return predict(*flags, console); };
}

}  // namespace pareprop::cli
