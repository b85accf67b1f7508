// Compiled for AVX-512 where the CPU is an x86: only such CPUs have products of pairs (gemm.h), and
// nothing here runs on others.

#include "pareprop/ops/kernels/bf16_pairs.h"

#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cstring>

namespace pareprop {
namespace {

using c10::BFloat16;

void pair_two(const BFloat16* upper, const BFloat16* lower, std::int64_t columns, Pair16* out) {
  for (std::int64_t j = 0; j < columns; ++j) {
    out[j] = static_cast<Pair16>(upper[j].x) | static_cast<Pair16>(lower[j].x) << 16;
  }
}

// As floats, whose bits are moved and not looked at.
void transpose(const Pair16* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
               Pair16* out, std::int64_t out_stride) {
  at::vec::transpose_mxn<float>(reinterpret_cast<const float*>(x), stride,
                                reinterpret_cast<float*>(out), out_stride, static_cast<int>(rows),
                                static_cast<int>(columns));
}

}  // namespace

void pair_rows(const BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
               Pair16* out) {
  for (std::int64_t i = 0; i + 1 < rows; i += 2, out += columns) {
    pair_two(x + i * stride, x + (i + 1) * stride, columns, out);
  }
  if (rows % 2 == 0) return;
  const BFloat16* last = x + (rows - 1) * stride;
  for (std::int64_t j = 0; j < columns; ++j) out[j] = last[j].x;
}

void pair_rows_transposed(const BFloat16* x, std::int64_t stride, std::int64_t rows,
                          std::int64_t columns, Pair16* out) {
  constexpr std::int64_t kPairs = 16, kColumns = 64;  // stay in registers and the first cache
  alignas(64) Pair16 strip[kPairs * kColumns];
  const std::int64_t pairs = pairs_of(rows);
  for (std::int64_t i = 0; i < pairs; i += kPairs) {
    const std::int64_t taken = std::min(2 * kPairs, rows - 2 * i);
    for (std::int64_t j = 0; j < columns; j += kColumns) {
      const std::int64_t width = std::min(kColumns, columns - j);
      pair_rows(x + 2 * i * stride + j, stride, taken, width, strip);
      transpose(strip, width, pairs_of(taken), width, out + j * pairs + i, pairs);
    }
  }
}

void pair_columns(const BFloat16* x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                  Pair16* out) {
  // Rows of x may begin at odd addresses of words: so they are copied first.
  constexpr std::int64_t kRows = 16, kWords = 64;
  alignas(64) Pair16 strip[kRows * kWords];
  for (std::int64_t i = 0; i < rows; i += kRows) {
    const std::int64_t taken = std::min(kRows, rows - i);
    for (std::int64_t j = 0; j < columns / 2; j += kWords) {
      const std::int64_t words = std::min(kWords, columns / 2 - j);
      for (std::int64_t r = 0; r < taken; ++r) {
        std::memcpy(strip + r * words, x + (i + r) * stride + 2 * j,
                    static_cast<std::size_t>(words) * sizeof(Pair16));
      }
      transpose(strip, words, taken, words, out + j * rows + i, rows);
    }
  }
}

void round_rows(const float* x, std::int64_t rows, std::int64_t columns, float scale, BFloat16* out,
                std::int64_t stride) {
  using Float = at::vec::Vectorized<float>;
  constexpr std::int64_t kStep = 2 * Float::size();
  const Float by(scale);
  for (std::int64_t i = 0; i < rows; ++i, x += columns, out += stride) {
    std::int64_t j = 0;
    for (; j + kStep <= columns; j += kStep) {
      at::vec::convert_float_bfloat16(Float::loadu(x + j) * by,
                                      Float::loadu(x + j + Float::size()) * by)
          .store(out + j);
    }
    for (; j < columns; ++j) out[j] = x[j] * scale;
  }
}

}  // namespace pareprop
