#include "cli/trained_flags.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "cli/command.h"

namespace pareprop::cli {
namespace {

struct NetworkFlag {
  const char* key;
  const char* help;
  bool is_switch = false;
};
constexpr NetworkFlag kNetworkFlags[] = {
    {"model",
     "Network of --weights, where they are a file with names of pareprop without its run, of sizes "
     "that no network has; 'pareprop models' lists all (default: what the weights tell)"},
    {"plain", "It is the ordinary, non-reversible network (default: what the weights tell)", true},
    {"heads",
     "Its heads, or of each stage separated by commas (default: what the weights tell, or the "
     "model's)"},
    {"patch", "Side of its patches in pixels (default: what the weights tell, or the model's)"},
    {"image_size",
     "Height and width of its images in pixels (default: what the weights tell, or the model's)"},
    {"norm_eps", "eps of its norms (default: what the weights tell, or the model's)"},
    {"ending",
     "What it reads of the streams of its stacks: concat, sum, mean, y1, y2 or sum-x (default: "
     "concat)"}};

}  // namespace

void add_trained_flags(CLI::App& command, TrainedFlags& flags, std::string_view without) {
  auto* of_run = command.add_option("--run", flags.run, "Folder of the run")->type_name("FOLDER");
  auto* of_weights = command.add_option(
      "--weights", flags.weights,
      "Use these weights instead of a run's: a safetensors file, or a folder of Hugging Face or "
      "timm (default: none)");
  of_weights->type_name("PATH")->excludes(of_run);
  command.add_flag("--last", flags.last,
                   "Use the last weights (default: the weights with the lowest validation loss)");
  for (const NetworkFlag& flag : kNetworkFlags) {
    if (flag.key == without) continue;
    const auto set = [&flags, key = flag.key](const std::string& value) {
      flags.network.emplace_back(key, value);
    };
    const std::string name = train::flag_name(flag.key);
    auto* option =
        flag.is_switch
            ? command.add_flag_callback(
                  name, [set] { set("true"); }, flag.help)
            : command.add_option_function<std::string>(name, set, flag.help)->type_name("");
    option->needs(of_weights);
  }
}

train::TrainedRun open_trained(const TrainedFlags& flags, train::PretrainedOptions options) {
  if (flags.weights.empty()) {
    const auto which = flags.last ? train::WhichWeights::last : train::WhichWeights::best;
    return train::load_run(flags.run, which, options.device);
  }
  if (flags.last) throw UsageError("--last: it goes with --run, not with --weights");
  for (const auto& [key, value] : flags.network) train::set_field(options.network, key, value);
  train::check(options.network);
  return train::load_pretrained(flags.weights, options);
}

}  // namespace pareprop::cli
