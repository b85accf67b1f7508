#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"

namespace pareprop::train {

// The sum of the squares of its values. On the CPU it has the same bits on any number of threads;
// float32 squares are summed as float64 and cannot overflow.
double squared_norm(const at::Tensor& gradient);

struct GradientNorm {
  double norm = 0.0;  // of all gradients as one vector; not finite where one of them is not
  // The parameter whose gradient went bad first: the one nearest the loss, as the backward pass
  // comes from there. Empty: all are finite.
  std::string first_not_finite = {};
};

// Of the gradients of `parameters`, which are in the order of the network; those without one are
// left out.
GradientNorm gradient_norm(const io::NamedTensors& parameters);

// The same in two parts, for devices whose values are read together with others (Note [Reads after
// the step]): making it issues what computes the norms, of() tells what their values say.
class GradientNorms {
 public:
  explicit GradientNorms(const io::NamedTensors& parameters);

  const std::vector<at::Tensor>& numbers() const { return norms_; }
  GradientNorm of(c10::ArrayRef<double> values) const;

 private:
  std::vector<std::string> names_;
  std::vector<at::Tensor> norms_;  // of each gradient, one number
};

// The first of `tensors` with a value that is not finite; empty: all are.
std::string first_not_finite(const io::NamedTensors& tensors);

// What gradients of this norm are to be multiplied with so that it becomes at most `limit`; 1 where
// the limit is 0: none.
double clip_factor(double norm, double limit);

}  // namespace pareprop::train
