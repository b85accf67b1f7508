#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/optim/decays.h"
#include "pareprop/optim/moment.h"
#include "pareprop/optim/optimizer.h"
#include "pareprop/optim/rounding.h"

namespace pareprop::optim {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.05;  // of weights that decays() names
  bool decay_all = false;      // of all other weights too
  StateKind state = StateKind::fp32;
  std::uint64_t seed = 0;  // of what is rounded at random
};

// Adam with decoupled weight decay. Its state is "exp_avg.NAME" and "exp_avg_sq.NAME", as
// add_named() names them, and "step.NAME" of every parameter.
class AdamW final : public Optimizer {
 public:
  // Weights that are bfloat16 are rounded at random: no copy in float32 is kept. Throws
  // std::invalid_argument for an option out of its range, and for a parameter that is neither
  // float32 nor bfloat16; float64 is for state in fp32 only.
  explicit AdamW(io::NamedTensors parameters, AdamWOptions options = {});

  void update(c10::ArrayRef<std::size_t> which, double learning_rate,
              double gradient_factor) override;
  io::NamedTensors state() const override;

 private:
  struct State {
    Moment average, square_average;
    at::Tensor step = {};  // of torch's kernel
    StepCount count = {};  // of ours

    bool is_torchs() const { return step.defined(); }
  };

  void update_by_torch(c10::ArrayRef<std::size_t> which, double learning_rate,
                       double gradient_factor);
  void update_one(std::size_t i, double learning_rate, double gradient_factor);

  AdamWOptions options_;
  std::vector<State> states_;  // one a parameter
};

}  // namespace pareprop::optim
