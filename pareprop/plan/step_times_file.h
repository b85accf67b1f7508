#pragma once

#include <c10/core/Device.h>

#include <filesystem>
#include <optional>
#include <string>

#include "pareprop/plan/step_times.h"

namespace pareprop::plan {

// What times depend on besides the network: the processor and its threads, or the accelerator; and
// the version of torch. Times measured on another machine do not count here.
std::string this_machine(c10::Device device = at::kCPU);

// Times measured on a device, kept so that they are measured once. `key` names network and
// precision; the file has the times of several sizes.
class StepTimesFile {
 public:
  // In `folder`, which need not be there yet.
  StepTimesFile(std::filesystem::path folder, std::string key, c10::Device device = at::kCPU);

  struct Found {
    SizeTimes times;  // none: no such file, or it does not count
    std::string
        why_not;  // "measured on another machine (...)": when a file is there that does not count
  };
  Found read() const;

  // Throws std::system_error.
  void write(const SizeTimes& times) const;

 private:
  std::filesystem::path path_;
  std::string key_;
  std::string machine_;
};

// $XDG_CACHE_HOME/pareprop or ~/.cache/pareprop; none when neither is set.
std::optional<std::filesystem::path> cache_folder();

}  // namespace pareprop::plan
