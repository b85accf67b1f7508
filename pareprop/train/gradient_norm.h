#pragma once

#include <string>

#include "pareprop/io/safetensors.h"

namespace pareprop::train {

struct GradientNorm {
  double norm = 0.0;  // of all gradients as one vector; not finite where one of them is not
  // The parameter whose gradient went bad first: the one nearest the loss, as the backward pass
  // comes from there. Empty: all are finite.
  std::string first_not_finite = {};
};

// Of the gradients of `parameters`, which are in the order of the network; those without one are
// left out. On the CPU it has the same bits on any number of threads. Float32 squares are summed
// as float64 and cannot overflow.
GradientNorm gradient_norm(const io::NamedTensors& parameters);

// The first of `tensors` with a value that is not finite; empty: all are.
std::string first_not_finite(const io::NamedTensors& tensors);

// What gradients of this norm are to be multiplied with so that it becomes at most `limit`; 1 where
// the limit is 0: none.
double clip_factor(double norm, double limit);

}  // namespace pareprop::train
