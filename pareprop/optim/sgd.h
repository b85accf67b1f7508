#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/optim/moment.h"
#include "pareprop/optim/optimizer.h"
#include "pareprop/optim/rounding.h"

namespace pareprop::optim {

struct SgdOptions {
  double momentum = 0.9;       // 0: none, and no state
  double weight_decay = 0.05;  // of weights that decays() names; added to the gradient
  bool decay_all = false;      // of all other weights too
  StateKind state = StateKind::fp32;
  std::uint64_t seed = 0;  // of what is rounded at random
};

// Stochastic gradient descent as torch's: momentum = m * momentum + gradient + decay * weights, and
// weights -= rate * momentum. Its state is "momentum.NAME" of every parameter, as add_named() names
// it, and "step.NAME" where something is rounded at random.
class Sgd final : public Optimizer {
 public:
  // Throws as AdamW does.
  explicit Sgd(io::NamedTensors parameters, SgdOptions options = {});

  void update(c10::ArrayRef<std::size_t> which, double learning_rate,
              double gradient_factor) override;
  io::NamedTensors state() const override;

 private:
  struct State {
    Moment momentum;
    StepCount count;  // where something is rounded

    bool is_rounded() const { return count.tensor().defined(); }
  };

  void update_one(std::size_t i, const SgdStep& step);

  SgdOptions options_;
  std::vector<State> states_;  // one a parameter
};

}  // namespace pareprop::optim
