#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace pareprop {

// All dimensions but the last as one.
inline at::Tensor as_rows(const at::Tensor& t) { return t.reshape({-1, t.size(-1)}); }

// Gradients of the parameters of a linear map y = x weight^T + bias, computed at once, or left to
// the thread's queue (ops/deferred_gradients.h) and undefined. dy (rows, out), x (rows, in). That
// of a weight is added to the sum of earlier ones where there is one (Note [Products added to
// sums]).
//
// `parameter` is what a node's forward pass remembered of it with deferrable().
at::Tensor weight_gradient(const c10::IValue& parameter, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType dtype);
at::Tensor bias_gradient(const c10::IValue& parameter, const at::Tensor& dy, at::ScalarType dtype);

// The parameter if its gradient can wait, else none: autograd still has to carry the gradient of
// what is not a leaf further.
c10::IValue deferrable(const at::Tensor& parameter);

}  // namespace pareprop
