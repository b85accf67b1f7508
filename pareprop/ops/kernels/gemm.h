#pragma once

#include <cstdint>

#include "pareprop/ops/kernels/bf16_pairs.h"

namespace pareprop {

enum class Transpose : char { no = 'N', yes = 'T' };

// A matrix in memory, row by row; `stride` values from one row to the next.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t stride = 0;
};

// c (m, n) = alpha * a (m, k) * b (k, n) + beta * c, where a and b may be given transposed. By the
// BLAS that libtorch was built with; on one thread when called from a parallel region. float and
// double.
template <typename T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c);

// Whether this CPU multiplies bfloat16 by pairs, and torch's library for it may be used.
bool has_pair_products();

// c (m, n) = a (m, k) * b (k / 2, n), added to c where `add` says so; b is dense, as pair_rows
// makes it. REQUIRES: has_pair_products(), k even.
void multiply_pairs(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const c10::BFloat16> a,
                    const Pair16* b, bool add, Matrix<float> c);
// To be called by a thread after its last product: gives back what the CPU keeps for them.
void end_pair_products();

}  // namespace pareprop
