#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pareprop/train/train_config.h"

namespace pareprop::train {

// The recipe by which somebody trained, for a batch of theirs.
struct Preset {
  std::string name;
  std::string what;
  void (*apply)(TrainConfig&);
};

const std::vector<Preset>& presets();

// Throws std::invalid_argument that lists the names there are.
void apply_preset(TrainConfig& config, std::string_view name);

}  // namespace pareprop::train
