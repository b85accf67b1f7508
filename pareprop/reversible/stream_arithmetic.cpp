#include "pareprop/reversible/stream_arithmetic.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/round.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/ops/row_ops.h"

namespace pareprop {

std::string_view name(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::exact ? "exact" : "float";
}

StreamArithmetic::StreamArithmetic(Arithmetic arithmetic, at::ScalarType stream_dtype,
                                   int fraction_bits)
    : arithmetic_(arithmetic), dtype_(stream_dtype), fraction_bits_(fraction_bits) {
  const bool wide = stream_dtype == at::kDouble;
  if (fraction_bits_ == 0) fraction_bits_ = wide ? 44 : 20;
  const int most = wide ? 60 : 28;
  if (fraction_bits_ < 1 || fraction_bits_ > most) {
    throw std::invalid_argument("exact streams: expected fraction bits between 1 and " +
                                std::to_string(most) + ", got " + std::to_string(fraction_bits_));
  }
}

at::Tensor StreamArithmetic::to_fixed(const at::Tensor& f) const {
  const auto integer = dtype_ == at::kDouble ? at::kLong : at::kInt;
  return f.to(dtype_).mul(std::ldexp(1.0, fraction_bits_)).round_().to(integer);
}

at::Tensor StreamArithmetic::enter(const at::Tensor& x) const { return exact() ? to_fixed(x) : x; }

at::Tensor StreamArithmetic::leave(const at::Tensor& u) const {
  return exact() ? u.to(dtype_).mul_(std::ldexp(1.0, -fraction_bits_)) : u;
}

at::Tensor StreamArithmetic::add(at::Tensor u, const at::Tensor& f) const {
  const bool over = sole_owner(u);
  return add_scaled(std::move(u), f, exact() ? std::ldexp(1.0, fraction_bits_) : 1.0, over);
}

at::Tensor StreamArithmetic::subtract(at::Tensor u, const at::Tensor& f) const {
  const bool over = sole_owner(u);
  return add_scaled(std::move(u), f, exact() ? -std::ldexp(1.0, fraction_bits_) : -1.0, over);
}

std::string StreamArithmetic::range_error(double largest_u, double largest_f) const {
  // Half the range for each of the two, so that their sum cannot wrap around.
  const double limit = std::ldexp(1.0, (dtype_ == at::kDouble ? 62 : 30) - fraction_bits_);
  const double of_u = largest_u * std::ldexp(1.0, -fraction_bits_);
  if (largest_f < limit && of_u < limit) return {};
  const double largest_value = largest_f < limit ? of_u : largest_f;
  if (!std::isfinite(largest_value)) {
    return "a value is " + std::to_string(largest_value) + ", which exact streams (fixed point, " +
           std::to_string(fraction_bits_) +
           " fraction bits) cannot hold; if this happens in training, use a lower learning rate or "
           "a longer warmup";
  }
  return "values up to " + std::to_string(largest_value) + " do not fit exact streams with " +
         std::to_string(fraction_bits_) + " fraction bits (limit " + std::to_string(limit) +
         "): use a lower learning rate, or float streams instead of exact ones (leave out --exact; "
         "in 'train' use --streams float; in C++ Arithmetic::floating or fewer "
         "StackOptions::fraction_bits)";
}

bool sole_owner(const at::Tensor& t) {
  return t.defined() && t.use_count() == 1 && t.storage().use_count() == 1 &&
         t.is_non_overlapping_and_dense();
}

}  // namespace pareprop
