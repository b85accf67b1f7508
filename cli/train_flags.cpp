#include "cli/train_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "pareprop/train/presets.h"

namespace pareprop::cli {
namespace {

std::string flag_of(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError("--config: " + path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

void add_train_flags(CLI::App& command, const std::shared_ptr<TrainFlags>& flags) {
  std::vector<std::string> names;
  for (const auto& preset : train::presets()) names.push_back(preset.name);
  command.add_option("--preset", flags->preset,
                     "Begin with a recipe: " + join(names, ", ") + " (default: none)");
  command
      .add_option("--config", flags->config,
                  "Then with a JSON file of keys that are named as these flags (default: none)")
      ->type_name("FILE");
  for (const train::ConfigField& field : train::fields({})) {
    const auto change = [flags, key = field.key](const std::string& value) {
      flags->changes.emplace_back(key, value);
    };
    if (field.is_switch) {
      command.add_flag_callback(
          flag_of(field.key), [change] { change("true"); }, field.help + " (default: off)");
    } else {
      command.add_option_function<std::string>(flag_of(field.key), change, field.help)
          ->default_str(field.value.empty() ? "none" : field.value)
          ->type_name("")
          ->take_last();
    }
  }
}

train::TrainConfig config_of(const TrainFlags& flags) {
  train::TrainConfig config;
  if (!flags.preset.empty()) train::apply_preset(config, flags.preset);
  if (!flags.config.empty()) train::apply_json(config, read_file(flags.config), flags.config);
  for (const auto& [key, value] : flags.changes) {
    try {
      train::set_field(config, key, value);
    } catch (const std::invalid_argument& error) {
      throw UsageError("--" + std::string(error.what()));
    }
  }
  check(config);
  return config;
}

}  // namespace pareprop::cli
