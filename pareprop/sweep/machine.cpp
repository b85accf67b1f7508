#include "pareprop/sweep/machine.h"

#include <torch/version.h>

#include <array>
#include <ctime>
#include <thread>

#include "pareprop/device/choose_device.h"
#include "pareprop/io/processor.h"

namespace pareprop::sweep {

Machine this_machine(c10::Device device) {
  return {.cpu = io::processor_name(),
          .threads = static_cast<int>(std::thread::hardware_concurrency()),
          .torch = TORCH_VERSION,
          .accelerator = accelerator_name(device)};
}

std::string describe(const Machine& machine) {
  return (machine.accelerator.empty() ? "" : machine.accelerator + ", ") + machine.cpu + ", " +
         std::to_string(machine.threads) + (machine.threads == 1 ? " thread" : " threads") +
         ", torch " + machine.torch;
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
