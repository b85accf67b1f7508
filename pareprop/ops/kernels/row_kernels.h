#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace pareprop {

// Vectorised loops over rows, for one thread each: callers split the rows. Compiled once for each
// instruction set; row_kernels() picks what this CPU has (ATEN_CPU_CAPABILITY lowers it, as for
// torch itself).
//
// T is what is computed in and what weights and streams are stored in, S what values inside a
// branch are stored in: float and float, double and double, or float and bfloat16.
template <typename T, typename S>
struct RowKernels {
  // y = (x - mean) * rstd * weight + bias; keeps mean and rstd, one a row.
  void (*norm)(const T* x, const T* weight, const T* bias, double eps, std::int64_t rows,
               std::int64_t width, S* y, T* mean, T* rstd);
  // Writes dx, adds to dweight and dbias (width).
  void (*norm_backward)(const S* dy, const T* x, const T* weight, const T* mean, const T* rstd,
                        std::int64_t rows, std::int64_t width, T* dx, T* dweight, T* dbias);
  // h = gelu(x + bias), where h may be x, and gelu'(x + bias) in `slope` unless that is null.
  void (*bias_gelu)(const S* x, const T* bias, std::int64_t rows, std::int64_t width, S* h,
                    S* slope);
  // sums += the rows of x.
  void (*add_rows)(const S* x, std::int64_t rows, std::int64_t width, T* sums);
  // sum = u + factor * f, count values; sum may be u.
  void (*add_scaled)(const T* u, const S* f, T factor, std::int64_t count, T* sum);
  // The same of whole numbers: factor * f is rounded, halves to even. float only.
  void (*add_rounded)(const std::int32_t* u, const S* f, T factor, std::int64_t count,
                      std::int32_t* sum);
  // p = softmax(s * scale + bias + mask), which may be s itself; else s is used up. bias and mask
  // (width) may be null.
  void (*softmax)(T* s, T scale, const T* bias, const T* mask, std::int64_t width, S* p);
  // ds = p * (dp - sum(p * dp)), also over dp; which may be the same.
  void (*softmax_backward)(const S* p, T* dp, std::int64_t width, S* ds);
  // A part of a row: p = exp(x - top), where x = s * scale + bias + mask, `top` is the largest x so
  // far and `total` the sum of all exponentials; both are brought up to date. Sums of the parts
  // before have to be multiplied by `change`. s is used up, and p may be s.
  void (*softmax_part)(T* s, T scale, const T* bias, const T* mask, std::int64_t width, T* top,
                       T* total, T* change, S* p);
  // p = exp(s * scale + bias + mask - shift); p may be s.
  void (*exponentials)(const T* s, T scale, const T* bias, const T* mask, T shift,
                       std::int64_t width, S* p);
  // ds = p * (dp - shift), also over dp; which may be the same.
  void (*shifted_product)(const S* p, T* dp, T shift, std::int64_t width, S* ds);
  // y = factor * x, count values; y may be x.
  void (*scaled)(const T* x, T factor, std::int64_t count, S* y);
};

template <typename T, typename S>
const RowKernels<T, S>& row_kernels();

template <>
const RowKernels<float, float>& row_kernels();
template <>
const RowKernels<double, double>& row_kernels();
template <>
const RowKernels<float, c10::BFloat16>& row_kernels();

// The instruction set in use: "AVX512", "AVX2" or "DEFAULT".
const char* kernel_capability();

}  // namespace pareprop
