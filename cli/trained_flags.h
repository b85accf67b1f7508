#pragma once

#include <string>

#include "pareprop/train/trained_run.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// --run and --weights: which trained network a command uses.
void add_trained_flags(CLI::App& command, std::string& run, std::string& weights);

// That network: of --weights where it is given. `last`: the last weights of a run instead of the
// best ones. Throws UsageError, and what train::load_run() and train::load_pretrained() throw.
train::TrainedRun open_trained(const std::string& run, const std::string& weights, bool last,
                               const std::string& device);

}  // namespace pareprop::cli
