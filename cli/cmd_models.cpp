#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/memory/free_memory.h"
#include "pareprop/models/registry.h"
#include "pareprop/text/fixed.h"

namespace pareprop::cli {
namespace {

std::string stacks_text(const std::vector<int>& depths) {
  std::string text;
  for (int depth : depths) {
    if (!text.empty()) text += '+';
    text += std::to_string(depth);
  }
  return text;
}

std::string gmacs_text(double gmacs) { return text::fixed(gmacs, gmacs < 10.0 ? 3 : 1); }

struct ModelsFlags {
  bool plain = false;
  std::string json;
};

int list_models(const ModelsFlags& flags, const Console& console) {
  const JsonOutput json(flags.json, console.out);
  const auto free = static_cast<double>(memory::free_memory());
  auto rows = nlohmann::ordered_json::array();
  Table table({{"model", Align::left},
               {"weights"},
               {"GMACs"},
               {"blocks"},
               {"stored"},
               {flags.plain ? "checkpoint" : "reversible"},
               {"training"},
               {"fits"}});
  for (const std::string& name : models::model_names()) {
    const models::ModelSummary model = models::summarise(name, {.plain = flags.plain});
    rows.push_back({{"model", model.name},
                    {"parameters", model.parameters},
                    {"gmacs", model.gmacs},
                    {"tokens", model.tokens},
                    {"stacks", model.stacks},
                    {"activation_bytes_stored", model.activation_bytes_stored},
                    {"activation_bytes_reversible", model.activation_bytes_reversible},
                    {"step_bytes", model.step_bytes()},
                    {"train_bytes", model.train_bytes()},
                    {"fits", model.train_bytes() <= free}});
    table.add_row({model.name, count_text(model.parameters), gmacs_text(model.gmacs),
                   stacks_text(model.stacks), bytes_text(model.activation_bytes_stored),
                   bytes_text(model.activation_bytes_reversible), bytes_text(model.train_bytes()),
                   yes_no(model.train_bytes() <= free)});
  }
  if (!json.takes_stdout()) {
    const std::string lean = flags.plain ? "checkpoint" : "reversible";
    console.out
        << table.text() << "\n"
        << wrapped(
               "All numbers are for one sample in float32. GMACs: multiply-accumulates of "
               "the forward pass, in billions. stored, " +
               lean + ": peak of the activations in modes stored and " +
               (flags.plain ? "checkpoint" : "reprop") +
               ". training: all bytes of a training step in the second of these modes, with "
               "weights, gradients and the state of AdamW. fits: whether they fit in the "
               "free memory, " +
               bytes_text(free) + ". --json has more columns.")
        << "\n";
  }
  json.write({{"free_bytes", free}, {"rows", std::move(rows)}});
  return 0;
}

}  // namespace

Action add_models(CLI::App& app) {
  auto* command = app.add_subcommand(
      "models", "List the models with their sizes and the memory that they need");
  const auto flags = std::make_shared<ModelsFlags>();
  command->add_flag("--plain", flags->plain, "List the ordinary, non-reversible networks");
  command->add_option("--json", flags->json, kJsonHelp)->type_name("FILE");
  return [flags](const Console& console) { return list_models(*flags, console); };
}

}  // namespace pareprop::cli
