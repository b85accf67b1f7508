#include "pareprop/ops/kernels/gemm.h"

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

}  // namespace pareprop
