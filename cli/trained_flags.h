#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pareprop/train/pretrained_run.h"
#include "pareprop/train/trained_run.h"

namespace CLI {
class App;
}

namespace pareprop::cli {

// Which trained network a command uses: of a run, or of somebody's weights.
struct TrainedFlags {
  std::string run = "run";
  std::string weights;
  bool last = false;  // the last weights of the run instead of the best ones
  // Fields of its configuration that the weights do not tell, and their values.
  std::vector<std::pair<std::string, std::string>> network;
};

// --run, --weights, --last, --model and what else weights may not tell of their network, but
// `without` (a field); into `flags`, which must outlive the app.
void add_trained_flags(CLI::App& command, TrainedFlags& flags, std::string_view without = "");

// That network. `options` are for --weights; their fields of the network come from `flags`. Throws
// UsageError, and what train::load_run() and train::load_pretrained() throw.
train::TrainedRun open_trained(const TrainedFlags& flags, train::PretrainedOptions options);

}  // namespace pareprop::cli
