#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "pareprop/train/train_config.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// What 'pareprop train' was asked for: a preset, changed by a file, changed by flags.
struct TrainFlags {
  std::string preset;
  std::string config;                                        // a file
  std::vector<std::pair<std::string, std::string>> changes;  // key and value, in order
};

// What --preset can be: a table for people, or JSON. Returns the exit code.
int list_presets(const std::string& json_target, const Console& console);

// --preset, --config, and a flag for each field of TrainConfig.
void add_train_flags(CLI::App& command, const std::shared_ptr<TrainFlags>& flags);

// `--resume auto` begins with what the run in the folder was begun with. Throws
// std::invalid_argument: train::FieldError, or a message that names the file.
train::TrainConfig config_of(const TrainFlags& flags);

}  // namespace pareprop::cli
