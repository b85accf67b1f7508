#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "pareprop/optim/state_kind.h"

namespace pareprop::optim {

// Throws std::invalid_argument: "AdamW: beta1 is 2, expected ..." unless it holds.
void check_option(const std::string& optimizer, const std::string& name, double value, bool holds,
                  const std::string& expected);

// The same for a parameter of a type that cannot be trained with state of this kind.
void check_parameter(const std::string& optimizer, const std::string& name,
                     const at::Tensor& parameter, StateKind state);

}  // namespace pareprop::optim
