#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace pareprop {

// Whether a computation on these inputs becomes part of an autograd graph. Where it does not, an op
// keeps nothing for a backward pass, and may work in place on what it made.
inline bool records(at::TensorList inputs) {
  return c10::GradMode::is_enabled() &&
         std::any_of(inputs.begin(), inputs.end(),
                     [](const at::Tensor& t) { return t.defined() && t.requires_grad(); });
}

}  // namespace pareprop
