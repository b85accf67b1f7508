#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

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

// --preset, --config, and a flag for each field of TrainConfig.
void add_train_flags(CLI::App& command, const std::shared_ptr<TrainFlags>& flags);

// Throws std::invalid_argument; the message names the file or the flag.
train::TrainConfig config_of(const TrainFlags& flags);

}  // namespace pareprop::cli
