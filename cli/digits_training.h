#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pareprop/graph/policy.h"
#include "pareprop/graph/timeline.h"
#include "pareprop/ops/precision.h"

namespace pareprop::cli {

// The registry's model that is trained.
inline constexpr const char* kDigitsModel = "vit_digits";

struct DigitsTraining {
  Mode mode = Mode::pareprop;
  int steps = 120;
  std::int64_t batch = 64;
  Precision precision = Precision::fp32;
  std::uint64_t seed = 0;  // of weights and of the order of images
  c10::Device device = at::kCPU;
  // Mode auto only: what is planned for so many bytes of activations.
  std::int64_t activation_budget = 0;
};

struct DigitsResult {
  std::vector<double> losses;        // of every step
  double accuracy = 0.0;             // on images that were not trained on
  std::int64_t activation_peak = 0;  // bytes, of training steps after the first two
  double drift = 0.0;                // of the last step
  double step_ms = 0.0;              // median of forward and backward passes with all threads
  TaskGraph graph;                   // of the last backward pass
  Timeline timeline;

  double final_loss() const;        // mean of the last steps
  int recomputed_branches() const;  // in the last backward pass
};

// Images that are trained on; the other 299 measure accuracy.
inline constexpr std::int64_t kDigitsTrained = 1498;

// Trains on the built-in digits with AdamW and exact streams. The same seed gives the same weights
// and batches in every mode; no global generator is used. `on_step` hears the number of steps done.
//
// Note [Threads of the demo]
// How many threads share a sum decides how it is rounded. Training gives every mode half of them (a
// lane's share), so that the losses of all modes must have the same bits. Time is then measured
// with all threads, in steps that change no weight.
DigitsResult train_digits(const DigitsTraining& options,
                          const std::function<void(int)>& on_step = nullptr);

}  // namespace pareprop::cli
