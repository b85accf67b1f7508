#pragma once

#include <cstdint>

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

}  // namespace pareprop
