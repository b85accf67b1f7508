#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace pareprop {

// For messages: "Float [4, 196, 384] on cpu", or "an undefined tensor".
std::string describe(const at::Tensor& t);

}  // namespace pareprop
