#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "pareprop/plan/joint_search.h"
#include "pareprop/plan/planner.h"

namespace pareprop::plan {

struct LearnOptions {
  std::int64_t budget = 0;  // what cannot be measured within it is not
  std::string network;      // what it is: all that times depend on but depths and weights
  std::optional<std::filesystem::path> folder = std::nullopt;  // of times measured before
  bool again = false;  // also where they were measured before
  std::function<void(const std::string&)> on_message = nullptr;
  std::function<void(int, int)> on_step = nullptr;  // as of measure_step_times()
};

// "vit_small, 197 tokens": for LearnOptions::network.
std::string network_name(const std::string& model, std::int64_t tokens);

// Tells a planner how long steps of `network` take: from the folder, where they were measured
// before, or by a few steps, which are noted there. By multiply-accumulates where no reversible
// step fits. Returns the times; none where nothing was measured.
std::optional<StepTimes> learn_times(Planner& planner, Network& network, const LearnOptions& learn);
// The same of all sizes that a search should know (JointSearch::sizes_to_measure).
SizeTimes learn_times(JointSearch& search, Network& network, const LearnOptions& learn);

}  // namespace pareprop::plan
