#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace pareprop {

// Note [Products of pairs]
// CPUs multiply bfloat16 by pairs: c[i][j] += a[i][2k] * b[2k][j] + a[i][2k + 1] * b[2k + 1][j]. So
// the right operand has its rows two by two, interleaved: a word of 32 bits for each column. A last
// row that is alone is paired with zeros.
using Pair16 = std::uint32_t;

inline std::int64_t pairs_of(std::int64_t count) { return (count + 1) / 2; }

// x (rows, columns) with `stride` values from row to row -> (pairs_of(rows), columns).
void pair_rows(const c10::BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
               Pair16* out);
// The transpose of that, (columns, pairs_of(rows)): x^T as a left operand.
void pair_rows_transposed(const c10::BFloat16* x, std::int64_t stride, std::int64_t rows,
                          std::int64_t columns, Pair16* out);
// The rows of x^T, paired: (columns / 2, rows). REQUIRES: an even number of columns.
void pair_columns(const c10::BFloat16* x, std::int64_t stride, std::int64_t rows,
                  std::int64_t columns, Pair16* out);

// out = x * scale, rounded; x (rows, columns) is dense.
void round_rows(const float* x, std::int64_t rows, std::int64_t columns, float scale,
                c10::BFloat16* out, std::int64_t stride);

}  // namespace pareprop
