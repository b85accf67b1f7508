#include "pareprop/ops/product.h"

#include <ATen/Version.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <string>

#include "pareprop/ops/meta_device.h"
#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

bool lacks_bf16() {
#if defined(__x86_64__)
  static const bool lacks = !at::get_cpu_capability().starts_with("AVX512");
  return lacks;
#else
  return false;
#endif
}

// Autocast would narrow what was just widened.
class AsGiven {
 public:
  explicit AsGiven(const at::Tensor& t) : scope_(t.device().type(), {.enabled = false}) {}

 private:
  AutocastScope scope_;
};

at::Tensor wide(const at::Tensor& t) {
  return t.defined() && widens_bf16(t) ? t.to(at::kFloat) : t;
}

}  // namespace

bool widens_bf16(const at::Tensor& t) {
  return is_cpu_or_meta(t) && t.scalar_type() == at::kBFloat16 && lacks_bf16();
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  const AsGiven as_given(a);
  return at::mm(wide(a), wide(b)).to(dtype);
}

at::Tensor scaled_product(const at::Tensor& a, const at::Tensor& b, at::Tensor factor,
                          bool over_factor) {
  constexpr std::int64_t kRows = 512;  // a product of so many is as fast as a large one
  const AsGiven as_given(a);
  const at::Tensor wide_b = wide(b);
  const at::Tensor result = over_factor ? factor : at::empty_like(factor);
  for (std::int64_t first = 0; first < a.size(0); first += kRows) {
    const std::int64_t count = std::min(kRows, a.size(0) - first);
    const at::Tensor part = at::mm(wide(a.narrow(0, first, count)), wide_b);
    at::Tensor out = result.narrow(0, first, count);
    at::mul_out(out, part.to(factor.scalar_type()), factor.narrow(0, first, count));
  }
  return result;
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const AsGiven as_given(x);
  return at::linear(wide(x), wide(weight), wide(bias)).to(x.scalar_type());
}

at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = compute_dtype(a);
  const AsGiven as_given(a);
  return at::bmm(wide(a.to(dtype)), wide(b.to(dtype))).to(dtype);
}

}  // namespace pareprop
