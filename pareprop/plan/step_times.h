#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "pareprop/plan/profile.h"
#include "pareprop/reversible/network.h"

namespace pareprop::plan {

// Seconds of one block of a stack in the backward pass: means over all its blocks.
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

// Steps whose times are alike.
struct StepSize {
  std::int64_t samples = 1;
  bool adds = false;  // to gradients that are there
  // How it is measured, which says nothing about which size it is.
  bool overlapped = true;        // two lanes too
  bool drops_gradients = false;  // as soon as they are final

  friend bool operator<(const StepSize& a, const StepSize& b) {
    return std::pair(a.samples, a.adds) < std::pair(b.samples, b.adds);
  }
  friend bool operator==(const StepSize& a, const StepSize& b) { return !(a < b) && !(b < a); }
};

using SizeTimes = std::map<StepSize, StepTimes>;

// Those of a step with that factor as many samples, each as fast.
StepTimes scaled(StepTimes times, double factor);

// No plan of such steps is faster. `depths`: blocks of each stack.
Seconds least_seconds(const StepTimes& times, const std::vector<int>& depths);

// Runs a few training steps of each size that recompute everything they can, in one lane (mode
// reprop) and, where asked, in two (pareprop); the fastest counts. Sizes and modes take turns, so
// that a slow moment of the machine does not speak for one of them. Drops the network's gradients.
// `on_step` hears before each step how many are done, of how many; what it throws ends the
// measuring.
SizeTimes measure_step_times(Network& network, const std::vector<StepSize>& sizes,
                             const std::function<void(int, int)>& on_step = nullptr);
// The same of one size.
StepTimes measure_step_times(Network& network, std::int64_t samples, bool overlapped,
                             const std::function<void(int, int)>& on_step = nullptr);

// What was measured instead of multiply-accumulates. What a policy saves of the recomputation is
// told by the multiply-accumulates that it saves. `measured_rest` are those of what was measured as
// StepTimes::rest.
Profile timed(const WorkProfile& work, const StepTimes& times, Macs measured_rest);
// On a machine of that speed.
Profile timed(const WorkProfile& work, MacsPerSecond rate);

// How often and how long fastest_of() tries.
struct Spells {
  int count = 8;
  double seconds = 0.015;  // of each
};

// The least of what `once` says it took, over several short spells with a pause between them: a
// busy moment does not speak for the machine.
double fastest_of(const std::function<double()>& once, const std::function<void()>& pause,
                  const Spells& spells = {});

// By the fastest of many matrix products of a moderate size, tried for half a second. Once a
// process, for each device and number of threads.
MacsPerSecond measure_macs_per_second(c10::Device device = at::kCPU);

}  // namespace pareprop::plan
