#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/models/model.h"
#include "pareprop/sweep/task_times.h"

namespace pareprop {

// One of those that take turns.
struct Contestant {
  Mode mode = Mode::stored;
  std::int64_t budget = 0;  // bytes to keep to, mode `auto`; 0: none was named

  bool operator==(const Contestant&) const = default;
};

// A contestant of mode `auto`: what the planner found.
struct BudgetedPlan {
  std::int64_t budget = 0;  // 0: none was named
  StepPlan step = {};       // of each part
  std::int64_t parts = 1;   // equal ones that a batch is computed in
};

// How fast a training step of a model is in each mode, and what memory it takes.
struct MeasureOptions {
  std::vector<Mode> modes = preset_modes();
  std::vector<BudgetedPlan> plans = {};  // each is one more contestant
  std::int64_t batch = 4;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  int rounds = 5;  // in each, every mode has its turn: a slow moment of the machine hits all
  int steps = 2;   // a turn
  std::uint64_t seed = 0;
  double forward_macs = 0.0;  // of one sample; for flops_per_step
  // Called before each turn; round 0 is the untimed one, that of `rounds` + 1 is traced.
  std::function<void(const Contestant& contestant, int round)> on_turn = nullptr;
};

struct MeasureRow {
  Contestant contestant = {};
  std::vector<double> step_ms = {};  // every timed step, forward and backward
  std::vector<double> forward_ms = {};
  std::vector<double> backward_ms = {};
  std::int64_t activation_peak_bytes = 0;  // all but parameters, gradients and optimizer
  std::int64_t peak_bytes = 0;
  std::int64_t reserved_peak_bytes = 0;  // by the allocator of an accelerator
  double flops_per_step = 0.0;           // what the mode computes: recomputation included
  double loss = 0.0;                     // of the first step
  TaskTimes tasks = {};                  // of one more step, traced

  double median_ms() const;
  double best_ms() const;
};

// A step is forward, loss and backward; gradients are dropped after it. One step of each mode comes
// first, untimed: its peaks are the row's.
std::vector<MeasureRow> measure(models::Model& model, const MeasureOptions& options);

}  // namespace pareprop
