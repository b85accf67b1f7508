#pragma once

#include <string>

#include "pareprop/train/trainer.h"

namespace pareprop::train {

// A page about a run, in one file that needs no other: its curves (loss, accuracy, learning rate,
// speed, memory), how its blocks were trained, memory by tag, and its configuration.
std::string run_page(const TrainConfig& config, const TrainResult& result);

}  // namespace pareprop::train
