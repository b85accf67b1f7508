#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/models/model.h"

namespace pareprop {

// How fast a training step of a model is in each mode, and what memory it takes.
struct MeasureOptions {
  std::vector<Mode> modes = all_modes();
  std::int64_t batch = 4;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  int rounds = 5;  // in each, every mode has its turn: a slow moment of the machine hits all
  int steps = 2;   // a turn
  std::uint64_t seed = 0;
  double forward_macs = 0.0;  // of one sample; for flops_per_step
  // Called before each turn.
  std::function<void(Mode mode, int round)> on_turn = nullptr;
};

struct MeasureRow {
  Mode mode = Mode::stored;
  std::vector<double> step_ms = {};        // every timed step
  std::int64_t activation_peak_bytes = 0;  // all but parameters, gradients and optimizer
  std::int64_t peak_bytes = 0;
  double flops_per_step = 0.0;  // what the mode computes: recomputation included
  double loss = 0.0;            // of the first step

  double median_ms() const;
  double best_ms() const;
};

// A step is forward, loss and backward; gradients are dropped after it. One step of each mode comes
// first, untimed: its peaks are the row's. The model's stack options are left changed.
std::vector<MeasureRow> measure(models::Model& model, const MeasureOptions& options);

}  // namespace pareprop
