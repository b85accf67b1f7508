#include "cli/trained_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "cli/command.h"
#include "pareprop/train/pretrained_run.h"

namespace pareprop::cli {

void add_trained_flags(CLI::App& command, std::string& run, std::string& weights) {
  auto* of_run = command.add_option("--run", run, "Folder of the run")->type_name("FOLDER");
  command
      .add_option(
          "--weights", weights,
          "Use these weights instead of a run's: a safetensors file, or a folder of Hugging "
          "Face or timm (default: none)")
      ->type_name("PATH")
      ->excludes(of_run);
}

train::TrainedRun open_trained(const std::string& run, const std::string& weights, bool last,
                               const std::string& device) {
  if (weights.empty()) {
    return train::load_run(run, last ? train::WhichWeights::last : train::WhichWeights::best,
                           chosen_device(device));
  }
  if (last) throw UsageError("--last: it goes with --run, not with --weights");
  return train::load_pretrained(weights, chosen_device(device));
}

}  // namespace pareprop::cli
