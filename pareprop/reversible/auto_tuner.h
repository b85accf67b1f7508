#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "pareprop/reversible/stack_options.h"

namespace pareprop {

// Mode `auto`: as many blocks store their tape as the budget holds, the rest are reversed, and
// whether recovery overlaps is decided by timing the first backward passes both ways. Thread-safe.
class AutoTuner {
 public:
  // What the next call runs with: a trial, or the choice.
  StackOptions next(const StackOptions& asked, int depth);

  // What a backward pass of such a call took. `block_tape_bytes` is the largest tape of a block it
  // recovered, 0 when it could not be measured (no meter installed, or lanes overlapped).
  void observe(const StackOptions& used, double seconds, std::int64_t block_tape_bytes);

  bool decided() const;

  // Backward passes of each kind that are timed; the best counts, so the first one warms up.
  static constexpr int kTrials = 3;

 private:
  bool enough_trials() const;  // REQUIRES: mutex_ is held

  mutable std::mutex mutex_;
  std::vector<double> serial_, overlapped_;  // seconds of trials
  std::int64_t block_tape_bytes_ = 0;
};

}  // namespace pareprop
