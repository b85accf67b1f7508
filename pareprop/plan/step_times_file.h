#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "pareprop/plan/step_times.h"

namespace pareprop::plan {

// Processor, threads and library: times measured on another machine do not count here.
std::string this_machine();

// Measured times, kept so that they are measured once. `key` names network, batch and precision.
class StepTimesFile {
 public:
  // In `folder`, which need not be there yet.
  StepTimesFile(std::filesystem::path folder, std::string key);

  struct Found {
    std::optional<StepTimes> times;
    std::string
        why_not;  // "measured on another machine (...)": when a file is there that does not count
  };
  Found read() const;

  // Throws std::system_error.
  void write(const StepTimes& times) const;

 private:
  std::filesystem::path path_;
  std::string key_;
};

// $XDG_CACHE_HOME/pareprop or ~/.cache/pareprop; none when neither is set.
std::optional<std::filesystem::path> cache_folder();

}  // namespace pareprop::plan
