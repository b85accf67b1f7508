#pragma once

#include <string>
#include <vector>

#include "pareprop/train/trainer.h"

namespace pareprop::train {

// SVG pictures of a run: loss, accuracy, learning rate, samples a second, peak memory over the
// steps, and memory by tag.
std::vector<std::string> run_plots(const TrainResult& result);

}  // namespace pareprop::train
