#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run.h"

namespace pareprop::cli::testing {

struct ProgramRun {
  int code;
  std::string out;
  std::string err;
};

// The program with these arguments, in process.
inline ProgramRun run_program(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"pareprop"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  std::ostringstream out, err;
  const int code = run(static_cast<int>(argv.size()), argv.data(), out, err);
  return {code, out.str(), err.str()};
}

inline int lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

inline void expect_success(const ProgramRun& run) {
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.err, "");
}

inline std::set<std::string> flags_in(const std::string& text) {
  static const std::regex flag("--[a-z][a-z0-9-]*");
  return {std::sregex_token_iterator(text.begin(), text.end(), flag), std::sregex_token_iterator()};
}

// A message about a flag names it as it is typed, and advises none that the command does not have.
inline void expect_flags_of(const std::string& command, const ProgramRun& run) {
  const std::string help = run_program({command, "--help"}).out + " --help ";
  for (const std::string& flag : flags_in(run.err)) {
    EXPECT_TRUE(flags_in(help).contains(flag)) << flag << " in: " << run.err;
  }
}

}  // namespace pareprop::cli::testing
