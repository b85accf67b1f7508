#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/output_file.h"
#include "cli/table.h"
#include "cli/units.h"
#include "pareprop/graph/text.h"
#include "pareprop/models/registry.h"

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

int list_models(const std::string& json_target, const Console& console) {
  const JsonOutput json(json_target, console.out);
  auto rows = nlohmann::ordered_json::array();
  Table table({{"model", Align::left},
               {"parameters"},
               {"GMACs"},
               {"tokens"},
               {"blocks"},
               {"stored"},
               {"reversible"}});
  for (const std::string& name : models::model_names()) {
    const models::ModelSummary model = models::summarise(name);
    rows.push_back({{"model", model.name},
                    {"parameters", model.parameters},
                    {"gmacs", model.gmacs},
                    {"tokens", model.tokens},
                    {"stacks", model.stacks},
                    {"activation_bytes_stored", model.activation_bytes_stored},
                    {"activation_bytes_reversible", model.activation_bytes_reversible}});
    table.add_row({model.name, count_text(model.parameters), text::fixed(model.gmacs, 3),
                   std::to_string(model.tokens), stacks_text(model.stacks),
                   bytes_text(model.activation_bytes_stored),
                   bytes_text(model.activation_bytes_reversible)});
  }
  if (!json.takes_stdout()) {
    console.out
        << table.text()
        << "\nGMACs: forward pass of one sample. stored, reversible: peak of the "
           "activations of a\nfloat32 training step of one sample, in modes stored and reprop, "
           "seen by running it\non a device without memory.\n";
  }
  json.write({{"rows", std::move(rows)}});
  return 0;
}

}  // namespace

Action add_models(CLI::App& app) {
  auto* command = app.add_subcommand("models", "List the models and what they need");
  const auto target = std::make_shared<std::string>();
  command->add_option("--json", *target, kJsonHelp)->type_name("FILE");
  return [target](const Console& console) { return list_models(*target, console); };
}

}  // namespace pareprop::cli
