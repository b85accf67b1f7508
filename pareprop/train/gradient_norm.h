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

// Of gradients with these squared norms, one a parameter. `parameters` are in the order of the
// network.
GradientNorm norm_of(const io::NamedTensors& parameters, c10::ArrayRef<double> squares);

// The squared norm of the gradient of each parameter; 0 of one that has none.
std::vector<double> squared_norms(const io::NamedTensors& parameters);

// The same in two parts, for devices whose values are read together with others (Note [Reads after
// the step]): making it issues what computes the norms, squares() tells what their values say.
class GradientNorms {
 public:
  explicit GradientNorms(const io::NamedTensors& parameters);

  const std::vector<at::Tensor>& numbers() const { return norms_; }
  std::vector<double> squares(c10::ArrayRef<double> values) const;

 private:
  std::size_t parameters_;
  std::vector<std::size_t> places_;  // of those with a gradient
  std::vector<at::Tensor> norms_;    // of each gradient, one number
};

// The first of `tensors` with a value that is not finite; empty: all are.
std::string first_not_finite(const io::NamedTensors& tensors);

// What gradients of this norm are to be multiplied with so that it becomes at most `limit`; 1 where
// the limit is 0: none.
double clip_factor(double norm, double limit);

}  // namespace pareprop::train
