#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::train {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.05;  // of weights that decays() names
};

// Whether weight decay is for this parameter: not for biases, weights of norms (all that has one
// dimension), class tokens, or tables of absolute and relative positions.
bool decays(std::string_view name, const at::Tensor& parameter);

// Adam with decoupled weight decay. Its state is made with it, under the meter's tag for
// optimizers.
class AdamW {
 public:
  // Throws std::invalid_argument for an option out of its range, and for a parameter that is not
  // float32 or float64: sums of small steps need more digits than half precision has.
  explicit AdamW(io::NamedTensors parameters, AdamWOptions options = {});

  // One step with the gradients times `gradient_factor` (of clipping, or 1 / micro-steps), which
  // they are multiplied with in place. A parameter without gradient is left as it is. On the CPU
  // the weights have the same bits on any number of threads.
  void step(double learning_rate, double gradient_factor = 1.0);

  const io::NamedTensors& parameters() const { return parameters_; }

  // "exp_avg.NAME", "exp_avg_sq.NAME" and "step.NAME" of every parameter: the state itself, not a
  // copy.
  io::NamedTensors state() const;
  // A file of what state() gave. Throws what models::copy_named() throws.
  void load_state(const io::SafetensorsFile& state);

 private:
  struct Moments {
    at::Tensor average, square_average, step;
  };

  io::NamedTensors parameters_;
  AdamWOptions options_;
  std::vector<Moments> moments_;                    // one a parameter
  std::array<std::vector<std::size_t>, 2> groups_;  // parameters without and with decay
};

}  // namespace pareprop::train
