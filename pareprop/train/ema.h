#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::train {

// The exponential moving average of weights, often better than the weights themselves. Made as a
// copy of them, under the meter's tag for optimizers.
class Ema {
 public:
  // Throws std::invalid_argument for a decay that is not in 0..1 (1 excluded).
  Ema(io::NamedTensors parameters, double decay);

  // After each step of the optimizer: average = d * average + (1 - d) * weights. The n-th update
  // has d = min(decay, n / (n + 9)), so that the first weights, which are noise, are soon
  // forgotten.
  void update();

  // The average is that of the weights as they are now, as if they were the first.
  void restart();

  // Exchanges the memory of averages and weights; again: back. Nothing is copied, so that it works
  // where memory is short and where a device was lost.
  void swap();

  // "average.NAME" of every parameter and "updates": the state itself, not a copy.
  io::NamedTensors state() const;
  // A file of what state() gave. Throws what models::copy_named() throws.
  void load_state(const io::SafetensorsFile& state);

 private:
  io::NamedTensors parameters_;
  double decay_;
  std::vector<at::Tensor> averages_;  // one a parameter
  at::Tensor updates_;                // int64, one number, on the CPU
};

// The network has the averaged weights as long as this lives. Null: nothing changes.
class AveragedWeights {
 public:
  explicit AveragedWeights(Ema* ema) : ema_(ema) {
    if (ema_ != nullptr) ema_->swap();
  }
  ~AveragedWeights() {
    if (ema_ != nullptr) ema_->swap();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  Ema* ema_;
};

}  // namespace pareprop::train
