#include "cli/train_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/io/input_file.h"
#include "pareprop/io/json.h"
#include "pareprop/text/fixed.h"
#include "pareprop/train/presets.h"
#include "pareprop/train/trained_run.h"

namespace pareprop::cli {
namespace {

using train::flag_name;

std::string config_text(const std::string& file) {
  try {
    return io::read_text_file(file);
  } catch (const std::runtime_error& error) {
    throw UsageError("--config: " + std::string(error.what()));
  }
}

train::TrainConfig changed(train::TrainConfig config, const TrainFlags& flags) {
  if (!flags.preset.empty()) train::apply_preset(config, flags.preset);
  if (!flags.config.empty()) {
    train::apply_json(config, config_text(flags.config), flags.config);
  }
  for (const auto& [key, value] : flags.changes) train::set_field(config, key, value);
  return config;
}

// Where in --config a field has its value from; empty: it is not from there.
std::string place_in_file(const TrainFlags& flags, const std::string& key) {
  const bool given = std::any_of(flags.changes.begin(), flags.changes.end(),
                                 [&](const auto& change) { return change.first == key; });
  if (flags.config.empty() || given) return "";
  const std::string text = config_text(flags.config);
  return io::place_of_key(text, key).empty() ? "" : train::place_in_json(text, key, flags.config);
}

// What a run that is resumed was begun with, where there is one.
void apply_run(train::TrainConfig& config, const TrainFlags& flags) {
  const train::TrainConfig asked = changed({}, flags);
  const bool is_run = std::filesystem::exists(std::filesystem::path(asked.out) / "config.json");
  if (asked.resume == "auto" && is_run) config = train::config_of_begun_run(asked.out);
}

}  // namespace

int list_presets(const std::string& json_target, const Console& console) {
  const JsonOutput json(json_target, console.out);
  Table table(
      {{"preset", Align::left}, {"model", Align::left}, {"batch"}, {"length"}, {"learning rate"}});
  auto rows = nlohmann::ordered_json::array();
  std::string about;
  for (const train::Preset& preset : train::presets()) {
    train::TrainConfig config;
    preset.apply(config);
    const std::string batch = config.accumulate == 1 ? std::to_string(config.batch)
                                                     : std::to_string(config.batch) + " x " +
                                                           std::to_string(config.accumulate);
    table.add_row({preset.name, config.model, batch,
                   config.steps > 0 ? std::to_string(config.steps) + " steps"
                                    : text::fixed(config.epochs, 0) + " epochs",
                   error_text(config.learning_rate)});
    about += wrapped(preset.name + ": " + preset.what) + "\n";
    rows.push_back({{"preset", preset.name},
                    {"what", preset.what},
                    {"model", config.model},
                    {"batch", config.batch},
                    {"accumulate", config.accumulate},
                    {"steps", config.steps},
                    {"epochs", config.epochs},
                    {"learning_rate", config.learning_rate}});
  }
  if (!json.takes_stdout()) console.out << table.text() << "\n" << about;
  json.write({{"rows", std::move(rows)}});
  return 0;
}

void add_train_flags(CLI::App& command, const std::shared_ptr<TrainFlags>& flags) {
  std::vector<std::string> names;
  for (const auto& preset : train::presets()) names.push_back(preset.name);
  command.add_option("--preset", flags->preset,
                     "Start from a recipe: " + join(names, ", ") +
                         "; 'list' shows them with their batch sizes (default: none)");
  command
      .add_option("--config", flags->config,
                  "JSON file with values for these flags; its keys are the names with underscores. "
                  "It overrides --preset, and flags override it (default: none)")
      ->type_name("FILE");
  for (const train::ConfigField& field : train::fields({})) {
    const auto change = [flags, key = field.key](const std::string& value) {
      flags->changes.emplace_back(key, value);
    };
    if (field.is_switch) {
      command.add_flag_callback(
          flag_name(field.key), [change] { change("true"); }, field.help + " (default: off)");
    } else {
      command.add_option_function<std::string>(flag_name(field.key), change, field.help)
          ->default_str(field.value.empty() ? "none" : field.value)
          ->type_name("")
          ->take_last();
    }
  }
}

train::TrainConfig config_of(const TrainFlags& flags) {
  train::TrainConfig config;
  apply_run(config, flags);
  config = changed(std::move(config), flags);
  try {
    check(config);
  } catch (const train::FieldError& error) {
    const std::string place = place_in_file(flags, error.key());
    if (place.empty()) throw;
    throw std::invalid_argument(place + ": " + error.what());
  }
  return config;
}

}  // namespace pareprop::cli
