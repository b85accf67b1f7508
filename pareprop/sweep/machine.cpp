#include "pareprop/sweep/machine.h"

#include <torch/version.h>

#include <array>
#include <ctime>
#include <fstream>
#include <thread>

namespace pareprop::sweep {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto colon = line.find(':');
    const auto begin = line.find_first_not_of(' ', colon + 1);
    if (colon != std::string::npos && begin != std::string::npos) return line.substr(begin);
  }
  return "unnamed CPU";
}

}  // namespace

Machine this_machine() {
  return {.cpu = cpu_name(),
          .threads = static_cast<int>(std::thread::hardware_concurrency()),
          .torch = TORCH_VERSION};
}

std::string describe(const Machine& machine) {
  return machine.cpu + ", " + std::to_string(machine.threads) +
         (machine.threads == 1 ? " thread" : " threads") + ", torch " + machine.torch;
}

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

}  // namespace pareprop::sweep
