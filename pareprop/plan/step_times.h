#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pareprop/models/model.h"
#include "pareprop/plan/profile.h"

namespace pareprop::plan {

// Seconds of one block of a stack in the backward pass.
struct StackTimes {
  double recover = 0.0;     // its recomputation, alone
  double gradient = 0.0;    // the rest, alone
  double overlapped = 0.0;  // both, in two lanes; 0: not measured
  LaneTimes in_lanes = {};  // of the steps that `overlapped` is of

  bool operator==(const StackTimes&) const = default;
};

struct StepTimes {
  std::vector<StackTimes> stacks;
  double rest = 0.0;  // forward pass, head, what is between stacks

  bool operator==(const StepTimes&) const = default;
};

// Runs a few training steps in modes reprop and, where asked, pareprop; the fastest counts. The
// network's stack options are left changed, its gradients dropped. `on_step` hears before each step
// how many are done, of how many; what it throws ends the measuring.
StepTimes measure_step_times(models::Model& model, const models::Batch& batch, StackOptions options,
                             bool overlapped,
                             const std::function<void(int, int)>& on_step = nullptr);

// Gives a profile, whose seconds are multiply-accumulates, measured ones. What a policy saves of
// the recomputation is told by the multiply-accumulates that it saves. `measured_rest` are those of
// what was measured as StepTimes::rest.
void set_seconds(Profile& profile, const StepTimes& times, double measured_rest);
// The same from how many this machine computes in a second.
void set_seconds(Profile& profile, double macs_per_second);

// By matrix products of a moderate size, in short tries over half a second, of which the best
// counts: a busy moment does not speak for the machine. Once a process, for its number of threads.
double measure_macs_per_second();

}  // namespace pareprop::plan
