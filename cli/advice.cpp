#include "cli/advice.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string_view>
#include <vector>

namespace pareprop::cli {
namespace {

struct Remedy {
  Fault fault;
  const char* flag;
  const char* words;
};

constexpr Remedy kRemedies[] = {{Fault::out_of_memory, "--batch", "a smaller --batch"},
                                {Fault::out_of_memory, "--budget", "a smaller --budget"},
                                {Fault::out_of_memory, "--mode", "--mode reprop"},
                                {Fault::out_of_memory, "--modes", "--modes reprop"},
                                {Fault::out_of_memory, "--model", "a smaller --model"},
                                {Fault::no_kernel, "--device", "--device cpu"},
                                {Fault::no_bf16, "--precision", "--precision fp32"}};

}  // namespace

std::string advice(Fault fault, const CLI::App& command) {
  std::vector<std::string> remedies;
  for (const Remedy& one : kRemedies) {
    const auto has = [&](const char* flag) { return command.get_option_no_throw(flag) != nullptr; };
    // Where a trained network is used --model only says what it is.
    const bool chooses = one.flag != std::string_view("--model") || !has("--run");
    if (one.fault == fault && has(one.flag) && chooses) remedies.emplace_back(one.words);
  }
  const bool memory = fault == Fault::out_of_memory;
  if (remedies.empty()) return memory ? "; stop other programs that use memory" : "";
  std::string out = memory ? "; to need less memory, use " : "; use ";
  for (std::size_t i = 0; i < remedies.size(); ++i) {
    if (i > 0) out += i + 1 < remedies.size() ? ", " : " or ";
    out += remedies[i];
  }
  return out;
}

}  // namespace pareprop::cli
