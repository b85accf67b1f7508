#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Products of matrices, without autograd.
// Note [bf16 on CPUs without it]
// Where a CPU has neither AVX-512 nor bf16 instructions, torch multiplies bf16 matrices in scalar
// code, 20 to 200 times slower than float32. There bf16 operands are widened to float32, which
// holds them and their products exactly, multiplied by the fast routine, and the sums rounded once:
// the arithmetic of bf16 hardware, at the speed of float32.
bool widens_bf16(const at::Tensor& t);
bool cpu_lacks_bf16();

// a (m, k) times b (k, n), in `dtype`.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype);

// a (m, k) times b (k, n), times `factor` (m, n) element by element, in the type of `factor`: over
// it, or in a new tensor. Done by rows of a fixed number, so the first needs little memory more.
at::Tensor scaled_product(const at::Tensor& a, const at::Tensor& b, at::Tensor factor,
                          bool over_factor);

// x (..., in) times weight^T (out, in) plus bias (out) or undefined, in the type of x.
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// a^T (rows, m) times b (rows, n), in `dtype`: the gradient of a weight. Of bf16 in float32, on
// CPUs that have such products, it is not rounded to bf16 on the way.
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype);

// The same as torch's bmm, differentiable, under any autocast.
at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace pareprop
