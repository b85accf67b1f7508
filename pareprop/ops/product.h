#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Products of matrices, without autograd.
// Note [bf16 on CPUs without it]
// Where an x86 CPU has no bf16 instructions, torch multiplies bf16 matrices slower than float32: 3
// times with AVX-512, 20 to 200 times without, in scalar code. There bf16 operands are widened to
// float32, which holds them and their products exactly, multiplied by the fast routine, and the
// sums rounded once: the arithmetic of bf16 hardware, at the speed of float32.
bool widens_bf16(const at::Tensor& t);
bool cpu_lacks_bf16();

// a (m, k) times b (k, n), in `dtype`.
at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype);

// The same in the type of a, into `out` (m, n), whose rows may be some of a larger tensor's.
void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
// a (m, k) times weight^T (n, k) plus bias (n), likewise.
void affine_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& weight,
                 const at::Tensor& bias);

// x (..., in) times weight^T (out, in) plus bias (out) or undefined, in the type of x.
at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// a^T (rows, m) times b (rows, n), in `dtype`: the gradient of a weight. Of bf16 in float32, on
// CPUs and devices that have such products, it is not rounded to bf16 on the way.
// Where `sum` is defined it is added to that, which is returned. REQUIRES: `sum` is dense and of
// `dtype`.
at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype,
                              at::Tensor sum = {});

// The same as torch's bmm, differentiable, under any autocast.
at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b);

}  // namespace pareprop
