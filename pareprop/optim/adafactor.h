#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/optim/optimizer.h"
#include "pareprop/optim/rounding.h"

namespace pareprop::optim {

struct AdafactorOptions {
  double weight_decay = 0.05;  // of weights that decays() names
  bool decay_all = false;      // of all other weights too
  double clip = 1.0;  // largest root mean square of a parameter's step, as a part of the rate
  double decay_power = 0.8;  // beta2 of step t is 1 - t^-decay_power
  double eps = 1e-30;        // added to squares of gradients
  std::uint64_t seed = 0;    // of weights that are rounded at random
};

// Adafactor (Shazeer and Stern) without a first moment: of the second moment of a matrix it keeps
// the means over rows and over columns, so its state is next to nothing. A parameter with more than
// two dimensions is the matrix of its first and all others. The step of a parameter is clipped by
// its root mean square. The learning rate is used as it is, neither relative to the weights nor
// falling by itself; weight decay is decoupled, as AdamW's.
//
// Its state is "square_rows.NAME" and "square_columns.NAME" of a matrix, "square.NAME" of others,
// and "step.NAME".
class Adafactor final : public Optimizer {
 public:
  // Throws as AdamW does.
  explicit Adafactor(io::NamedTensors parameters, AdafactorOptions options = {});

  void update(c10::ArrayRef<std::size_t> which, double learning_rate,
              double gradient_factor) override;
  io::NamedTensors state() const override;

 private:
  struct State {
    at::Tensor rows = {}, columns = {};  // of a matrix
    at::Tensor square = {};              // of others
    StepCount count = {};
  };
  struct Step {
    double rate, gradient_factor, weight_factor, beta2;
    Rounding rounding;
  };

  template <typename Weight>
  void update_matrix(const at::Tensor& weights, const at::Tensor& gradients, const State& state,
                     const Step& step) const;
  void compose(const at::Tensor& weights, const at::Tensor& gradients, const State& state,
               const Step& step) const;

  AdafactorOptions options_;
  std::vector<State> states_;  // one a parameter
};

}  // namespace pareprop::optim
