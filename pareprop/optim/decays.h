#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace pareprop::optim {

// Whether weight decay is for this parameter: not for biases, weights of norms (all that has one
// dimension), class tokens, or tables of absolute and relative positions.
bool decays(std::string_view name, const at::Tensor& parameter);

}  // namespace pareprop::optim
