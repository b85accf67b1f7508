#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/digits_training.h"
#include "cli/terminal.h"
#include "pareprop/sweep/verify.h"

namespace pareprop::cli {

struct DemoRun {
  DigitsTraining training;
  DigitsResult result;
  VerifyRow gradients;
};

// One run a mode, `stored` first: the others are compared with it.
struct DemoReport {
  std::vector<DemoRun> runs;

  // The largest difference of a step's loss between a mode and `stored`.
  double loss_difference() const;
  bool same_loss() const;  // in every step, bit for bit
  bool gradients_hold() const;

  std::string text(const Terminal& terminal) const;
  nlohmann::ordered_json json() const;

  const DemoRun* find(Mode mode) const;
};

}  // namespace pareprop::cli
