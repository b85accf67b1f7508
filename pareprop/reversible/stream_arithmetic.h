#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace pareprop {

// How branch outputs are added to, and taken from, the two streams.
// Note [Exact streams]
// In floating point (u + f) - f is only nearly u. In `exact` arithmetic a stream is an integer
// tensor q standing for q * 2^-fraction_bits, and a branch output enters as the integer round(f *
// 2^bits). Integer addition wraps around and is undone by subtraction bit for bit, so a
// recomputation sees the very inputs of the forward pass, and every gradient has the bits of stored
// training.
enum class Arithmetic { floating, exact };

std::string_view name(Arithmetic arithmetic);

class StreamArithmetic {
 public:
  // `fraction_bits` 0: 20 for float32 streams (int32, |u| < 1024, steps of 1e-6), 44 for float64
  // (int64, |u| < 2^18).
  StreamArithmetic(Arithmetic arithmetic, at::ScalarType stream_dtype, int fraction_bits = 0);

  at::Tensor enter(const at::Tensor& x) const;  // floating point -> stream
  at::Tensor leave(const at::Tensor& u) const;  // stream -> floating point
  at::Tensor add(at::Tensor u, const at::Tensor& f) const;
  at::Tensor subtract(at::Tensor u, const at::Tensor& f) const;

  // Empty, or why a stream with values up to `largest_u` (whole numbers, as it holds them) and what
  // is added to it, up to `largest_f`, cannot be used: not finite, or too large for the range of
  // exact streams. See RangeProbe.
  std::string range_error(double largest_u, double largest_f) const;

  bool exact() const { return arithmetic_ == Arithmetic::exact; }

 private:
  at::Tensor to_fixed(const at::Tensor& f) const;

  Arithmetic arithmetic_;
  at::ScalarType dtype_;  // of the floating side
  int fraction_bits_;
};

// Nobody else holds the memory of `t`, so it may be overwritten.
bool sole_owner(const at::Tensor& t);

}  // namespace pareprop
