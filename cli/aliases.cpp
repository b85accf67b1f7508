#include "cli/aliases.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cctype>
#include <iterator>

#include "cli/table.h"
#include "pareprop/text/nearest.h"

namespace pareprop::cli {
namespace {

// From Hugging Face's Trainer, timm and torchrun.
constexpr Alias kAliases[] = {
    {"--batch-size", "--batch"},
    {"--img-size", "--image-size"},
    {"--input-size", "--image-size"},
    {"--max-seq-length", "--seq-len"},
    {"--drop", "--dropout"},
    {"--bf16", "--precision", "bf16"},
    {"--num-classes", "--classes"},
    {"--vocab-size", "--vocabulary"},
    {"--lr", "--learning-rate"},
    {"--min-lr", "--last-learning-rate"},
    {"--wd", "--weight-decay"},
    {"--lr-scheduler", "--decay"},
    {"--lr-scheduler-type", "--decay"},
    {"--sched", "--decay"},
    {"--warmup-ratio", "--warmup"},
    {"--adam-beta1", "--beta1"},
    {"--adam-beta2", "--beta2"},
    {"--adam-epsilon", "--eps"},
    {"--opt-eps", "--eps"},
    {"--max-grad-norm", "--clip"},
    {"--clip-grad", "--clip"},
    {"--model-ema-decay", "--ema"},
    {"--label-smoothing-factor", "--label-smoothing"},
    {"--smoothing", "--label-smoothing"},
    {"--mixup-prob", "--mix-probability"},
    {"--reprob", "--erase"},
    {"--per-device-train-batch-size", "--batch"},
    {"--gradient-accumulation-steps", "--accumulate"},
    {"--grad-accum-steps", "--accumulate"},
    {"--num-train-epochs", "--epochs"},
    {"--max-steps", "--steps"},
    {"--num-workers", "--workers"},
    {"--dataloader-num-workers", "--workers"},
    {"--output-dir", "--out"},
    {"--output", "--out"},
    {"--resume-from-checkpoint", "--resume"},
    {"--save-steps", "--save-every"},
    {"--save-total-limit", "--keep"},
    {"--eval-steps", "--eval-every"},
    {"--logging-steps", "--log-every"},
    {"--nproc-per-node", "--nproc"},
};

bool has(const CLI::App& command, std::string_view flag) {
  return command.get_option_no_throw(std::string(flag)) != nullptr;
}

// "--lr", and "-lr", which nobody has; not "-h" and "-0.5".
bool is_flag(const std::string& word) {
  if (word.starts_with("--")) return true;
  return word.size() > 2 && word[0] == '-' &&
         std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// A flag of the command's own, also where what was meant is an alias.
std::string nearest_flag(const CLI::App& command, const std::string& flag) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::vector<Alias> aliases = aliases_of(command);
  for (const Alias& alias : aliases) known.emplace_back(alias.other);
  const std::string near = text::nearest(flag, known);
  for (const Alias& alias : aliases) {
    if (alias.other == near) return std::string(alias.flag);
  }
  return near;
}

}  // namespace

std::vector<Alias> aliases_of(const CLI::App& command) {
  std::vector<Alias> known;
  std::copy_if(std::begin(kAliases), std::end(kAliases), std::back_inserter(known),
               [&](const Alias& alias) { return has(command, alias.flag); });
  return known;
}

std::vector<std::string> with_own_flags(const CLI::App& app, std::vector<std::string> words) {
  const CLI::App* command = nullptr;
  std::vector<std::string> out;
  std::vector<Alias> aliases;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (command == nullptr && !word.starts_with("-")) {
      command = find_command(app, word);
      if (command != nullptr) aliases = aliases_of(*command);
    }
    if (command == nullptr || !word.starts_with("--")) {
      out.push_back(word);
      continue;
    }
    const std::size_t end = std::min(word.find('='), word.size());
    std::string flag = word.substr(0, end);
    std::replace(flag.begin(), flag.end(), '_', '-');
    const auto alias = std::find_if(aliases.begin(), aliases.end(),
                                    [&](const Alias& one) { return one.other == flag; });
    if (alias != aliases.end() && !has(*command, flag)) flag = alias->flag;
    out.push_back((has(*command, flag) ? flag : word.substr(0, end)) + word.substr(end));
    if (alias != aliases.end() && !alias->value.empty()) out.emplace_back(alias->value);
  }
  return out;
}

const CLI::App* find_command(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&](const CLI::App* one) { return one->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = nullptr;
  for (const std::string& word : words) {
    if (word == "--") break;
    if (command == nullptr && !word.starts_with("-")) {
      command = find_command(app, word);
      if (command != nullptr) continue;
      std::vector<std::string> names;
      for (const auto* one : app.get_subcommands([](const CLI::App*) { return true; })) {
        names.push_back(one->get_name());
      }
      const std::string near = text::nearest(word, names);
      return "there is no command '" + word + "'" +
             (near.empty() ? "" : "; the nearest is '" + near + "'");
    }
    const CLI::App& of = command == nullptr ? app : *command;
    const std::string flag = word.substr(0, word.find('='));
    if (!is_flag(word) || has(of, flag)) continue;
    const std::string near = nearest_flag(of, word.starts_with("--") ? flag : "-" + flag);
    return "'" + std::string(command == nullptr ? "pareprop" : command->get_name()) +
           "' has no flag " + flag + (near.empty() ? "" : "; the nearest is " + near);
  }
  return "";
}

std::string aliases_text(const CLI::App& command) {
  std::string words;
  for (const Alias& alias : aliases_of(command)) {
    words += words.empty() ? "Names of other trainers also work: " : ", ";
    words += std::string(alias.other) + " is " + std::string(alias.flag);
    if (!alias.value.empty()) words += " " + std::string(alias.value);
  }
  return words.empty() ? "" : wrapped(words + ". Underscores may replace hyphens.", kPageWidth);
}

}  // namespace pareprop::cli
