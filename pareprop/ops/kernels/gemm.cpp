#include "pareprop/ops/kernels/gemm.h"

#include <ATen/Version.h>
#include <ATen/native/CPUBlas.h>

#include <stdexcept>

// The Fortran interface of BLAS, which libtorch exports. Columns first: there a row-major matrix is
// its own transpose, so c = a * b is asked for as c^T = b^T * a^T.
extern "C" {
void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const float* alpha, const float* a, const int* lda, const float* b,
            const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n,
            const int* k, const double* alpha, const double* a, const int* lda, const double* b,
            const int* ldb, const double* beta, double* c, const int* ldc);
}

namespace pareprop {
namespace {

template <typename T, typename Blas>
void call(Blas* blas, Transpose transpose_a, Transpose transpose_b, std::int64_t m, std::int64_t n,
          std::int64_t k, T alpha, Matrix<const T> a, Matrix<const T> b, T beta, Matrix<T> c) {
  const char ta = static_cast<char>(transpose_a), tb = static_cast<char>(transpose_b);
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a.stride), ldb = static_cast<int>(b.stride),
            ldc = static_cast<int>(c.stride);
  blas(&tb, &ta, &columns, &rows, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c.data, &ldc);
}

}  // namespace

template <>
void gemm<float>(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k,
                 float alpha, Matrix<const float> a, Matrix<const float> b, float beta,
                 Matrix<float> c) {
  call(sgemm_, ta, tb, m, n, k, alpha, a, b, beta, c);
}

template <>
void gemm<double>(Transpose ta, Transpose tb, std::int64_t m, std::int64_t n, std::int64_t k,
                  double alpha, Matrix<const double> a, Matrix<const double> b, double beta,
                  Matrix<double> c) {
  call(dgemm_, ta, tb, m, n, k, alpha, a, b, beta, c);
}

// Torch says what it supports by throwing. ATEN_CPU_CAPABILITY counts too, as everywhere.
bool has_pair_products() {
  static const bool has = [] {
    if (!at::get_cpu_capability().starts_with("AVX512")) return false;
    try {
      const c10::BFloat16 a[2] = {1.0F, 2.0F}, b[2] = {3.0F, 4.0F};
      float c = 0.0F;
      at::native::cpublas::brgemm(1, 1, 2, 2, 1, 1, false, a, b, &c, true);
      at::native::cpublas::brgemm_release(true);
      return c == 11.0F;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return has;
}

void multiply_pairs(std::int64_t m, std::int64_t n, std::int64_t k, Matrix<const c10::BFloat16> a,
                    const Pair16* b, bool add, Matrix<float> c) {
  at::native::cpublas::brgemm(m, n, k, a.stride, n, c.stride, add, a.data,
                              reinterpret_cast<const c10::BFloat16*>(b), c.data,
                              /*is_vnni=*/true);
}

void end_pair_products() { at::native::cpublas::brgemm_release(/*is_vnni=*/true); }

}  // namespace pareprop
