#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <memory>
#include <ostream>

#include "cli/command.h"
#include "cli/model_flags.h"
#include "cli/output_file.h"
#include "pareprop/train/presets.h"

namespace pareprop::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::string flags_of(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  return join(flags, " ");
}

// Flags whose values are of a few words.
std::vector<std::pair<std::string, std::vector<std::string>>> known_values() {
  std::vector<std::string> modes, presets{"list"};
  for (const Mode mode : all_modes()) modes.emplace_back(name(mode));
  for (const train::Preset& preset : train::presets()) presets.push_back(preset.name);
  return {{"--model", models::model_names()},
          {"--mode|--modes", modes},
          {"--preset", presets},
          {"--precision", {"fp32", "bf16", "fp64"}},
          {"--streams", {"auto", "float", "exact"}},
          {"--decay", {"cosine", "linear", "constant"}},
          {"--augment", {"auto", "none"}},
          {"--optimizer", {"adamw", "sgd", "adafactor", "none"}},
          {"--optimizer-state", {"fp32", "bf16", "8bit"}},
          {"--update", {"after", "inside"}},
          {"--allow", {"lean-state", "update-inside", "lean-state,update-inside"}},
          {"--shard", {"none", "state", "gradients"}},
          {"--device", {"auto", "cpu", "cuda"}},
          {"--resume", {"auto"}},
          {"--data", {"digits", "fashion-mnist", "persuasion", "synthetic"}}};
}

std::string bash_script(const CLI::App& app) {
  std::vector<std::string> names;
  std::string flags, values;
  for (const CLI::App* command : commands_of(app)) {
    names.push_back(command->get_name());
    flags += "      " + command->get_name() + ") words=\"" + flags_of(*command) + "\" ;;\n";
  }
  for (const auto& [flag, words] : known_values()) {
    values += "    " + flag + ") words=\"" + join(words, " ") + "\" ;;\n";
  }
  return "# Completes commands and flags of pareprop in bash. Printed by 'pareprop completion "
         "bash'.\n"
         "_pareprop() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
         "  case $before in\n" +
         values +
         "  esac\n"
         "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
         "    words=\"" +
         join(names, " ") +
         " --help --version\"\n"
         "  elif [[ -z $words && $word == -* ]]; then\n"
         "    case ${COMP_WORDS[1]} in\n" +
         flags +
         "    esac\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _pareprop pareprop\n";
}

}  // namespace

Action add_completion(CLI::App& app) {
  auto* command = app.add_subcommand(
      "completion",
      "Print a script for the shell that completes flags: source <(pareprop completion bash)");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Name of the shell: bash")->required();
  const auto json_target = std::make_shared<std::string>();
  command->add_option("--json", *json_target, kJsonHelp)->type_name("FILE");
  return [shell, json_target, &app](const Console& console) {
    if (*shell != "bash") throw UsageError("shell: expected bash, got '" + *shell + "'");
    const JsonOutput json(*json_target, console.out);
    const std::string script = bash_script(app);
    if (!json.takes_stdout()) console.out << script;
    json.write({{"shell", *shell}, {"script", script}});
    return 0;
  };
}

}  // namespace pareprop::cli
