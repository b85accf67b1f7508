#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace pareprop {

// The worst difference between the gradients of a random projection of function(inputs) and central
// differences, relative to the largest gradient of that input; over all inputs (double) that
// require gradient.
double gradient_error(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                      const std::vector<at::Tensor>& inputs);

// Gradients of sum(function(inputs) * random) for the inputs that require them, the output last.
std::vector<at::Tensor> gradients_of(
    const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs);

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

}  // namespace pareprop
