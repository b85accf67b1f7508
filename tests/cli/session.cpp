// The program's commands one after another in one process, for tests that have many: a JSON list of
// arguments in each line of standard input, {"code", "out", "err"} in each line of standard output.

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/run.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto words = nlohmann::json::parse(line).get<std::vector<std::string>>();
    std::vector<const char*> argv{"pareprop"};
    for (const std::string& word : words) argv.push_back(word.c_str());
    std::ostringstream out, err;
    const int code = pareprop::cli::run(static_cast<int>(argv.size()), argv.data(), out, err);
    // Messages may quote what is no UTF-8.
    std::cout << nlohmann::json{{"code", code}, {"out", out.str()}, {"err", err.str()}}.dump(
                     -1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  }
}
