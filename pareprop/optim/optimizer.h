#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::optim {

// Changes parameters by their gradients. Its state is made with it, under the meter's tag for
// optimizers.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // One step with the gradients times `gradient_factor` (of clipping, or 1 / micro-steps), which
  // they may be multiplied with in place. A parameter without gradient is left as it is. On the CPU
  // the weights have the same bits on any number of threads.
  void step(double learning_rate, double gradient_factor = 1.0);
  // The same for some of them: places in parameters(). A step of all, some at a time, gives the
  // bits of one step. Two threads may update different parameters at the same time.
  virtual void update(c10::ArrayRef<std::size_t> which, double learning_rate,
                      double gradient_factor) = 0;

  // From now on the learning rate of parameters()[i] is `factors[i]` times that of the step; weight
  // decay, which is a part of the rate, is so too. REQUIRES: one factor a parameter.
  void scale_rates(std::vector<double> factors) { rate_factors_ = std::move(factors); }

  const io::NamedTensors& parameters() const { return parameters_; }

  // By name, such as "exp_avg.NAME": the state itself, not a copy.
  virtual io::NamedTensors state() const = 0;
  // Files that together hold what state() gave; they may hold the state of other parameters too.
  // Throws what models::copy_named() throws, and std::invalid_argument that names both for the
  // state of another optimizer, or of another kind.
  void load_state(c10::ArrayRef<io::SafetensorsFile> files);

 protected:
  explicit Optimizer(io::NamedTensors parameters);

  double rate_factor(std::size_t i) const { return rate_factors_.empty() ? 1.0 : rate_factors_[i]; }

 private:
  io::NamedTensors parameters_;
  std::vector<double> rate_factors_;  // empty: all are 1
};

}  // namespace pareprop::optim
