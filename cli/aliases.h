#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace pareprop::cli {

// What a flag is called in other trainers, where it means the same.
struct Alias {
  std::string_view other;       // "--lr"
  std::string_view flag;        // "--learning-rate"
  std::string_view value = {};  // of a switch: what it gives to the flag
};

// Those of a command's own flags.
std::vector<Alias> aliases_of(const CLI::App& command);

// The one with that name; null: there is none.
const CLI::App* find_command(const CLI::App& app, const std::string& name);

// Words of a command line, without the name of the program, with flags as the program calls them:
// underscores are dashes, aliases are replaced. What is not known stays, and so does all that
// follows "--".
std::vector<std::string> with_own_flags(const CLI::App& app, std::vector<std::string> words);

// What is wrong with the first flag or command of those words that there is not, and what is
// nearest to it; empty: all are known.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words);

// "--lr is --learning-rate, ...": for --help. Empty: there are none.
std::string aliases_text(const CLI::App& command);
}  // namespace pareprop::cli
