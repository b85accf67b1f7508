#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/plan/planner.h"

namespace pareprop::plan {

struct LearnOptions {
  std::int64_t budget = 0;  // what cannot be measured within it is not
  std::string network;      // its name
  std::optional<std::filesystem::path> folder = std::nullopt;  // of times measured before
  bool again = false;  // also where they were measured before
  std::function<void(const std::string&)> on_message = nullptr;
  std::function<void(int, int)> on_step = nullptr;  // as of measure_step_times()
};

// Tells a planner how long steps of `model` take: from the folder, where they were measured before,
// or by a few steps, which are noted there. By multiply-accumulates where no reversible step fits.
// The network's stack options are left changed. Returns the times; none where nothing was measured.
std::optional<StepTimes> learn_times(Planner& planner, models::Model& model,
                                     const models::Batch& batch, const StackOptions& options,
                                     const LearnOptions& learn);

}  // namespace pareprop::plan
