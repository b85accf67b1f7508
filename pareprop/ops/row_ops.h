#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace pareprop {

// The row kernels on tensors: rows split over the threads, sums over rows in fixed chunks, so that
// the bits do not depend on the number of threads. No autograd. Where there is no kernel (another
// type, or Note [Two ways of an op]), torch's operators. Rows run along the last dimension.

// Layer norm of x in `dtype`, mean and rstd (rows).
std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_rows(const at::Tensor& x,
                                                         const at::Tensor& weight,
                                                         const at::Tensor& bias, double eps,
                                                         at::ScalarType dtype);
// Gradients of x, weight and bias.
std::tuple<at::Tensor, at::Tensor, at::Tensor> norm_rows_backward(const at::Tensor& dy,
                                                                  const at::Tensor& x,
                                                                  const at::Tensor& weight,
                                                                  const at::Tensor& mean,
                                                                  const at::Tensor& rstd);

// h = gelu(x + bias), where h may be x; `slope`, where defined, gets gelu'(x + bias). All are
// contiguous.
void bias_gelu(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& h,
               const at::Tensor& slope);

// u + factor * f, where f may have a narrower type; rounded to a whole number before it is added
// where u has an integer type. Over u, or in a new tensor. Both have the same sizes.
at::Tensor add_scaled(at::Tensor u, const at::Tensor& f, double factor, bool over_u);

// The sum of all rows, in `dtype`.
at::Tensor sum_rows(const at::Tensor& x, at::ScalarType dtype);

}  // namespace pareprop
