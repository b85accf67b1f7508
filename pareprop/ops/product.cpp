#include "pareprop/ops/product.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <c10/core/TensorOptions.h>

#include <string>

#include "pareprop/ops/device_path.h"
#include "pareprop/ops/kernels/gemm.h"
#include "pareprop/ops/kernels/pair_product.h"
#include "pareprop/ops/mac_counter.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product_scratch.h"

namespace pareprop {
namespace {

// Autocast would narrow what was just widened.
class AsGiven {
 public:
  explicit AsGiven(const at::Tensor& t) : scope_(t.device().type(), {.enabled = false}) {}

 private:
  AutocastScope scope_;
};

// Whether torch has products of bf16 on this device that leave their sums in float32.
bool has_widening_product(const at::Tensor& t) {
  if (t.is_meta()) return true;  // it stands for CUDA
  static const auto op = c10::Dispatcher::singleton().findSchema({"aten::mm", "dtype"});
  const auto key = c10::computeDispatchKey(t.scalar_type(), t.layout(), t.device());
  return op && op->hasKernelForDispatchKey(key);
}

at::Tensor widening_product(const at::Tensor& a, const at::Tensor& b) {
  if (!a.is_meta()) return at::mm(a, b, at::kFloat);
  add_meta_macs(static_cast<double>(a.numel()) * static_cast<double>(b.size(1)));
  return at::empty({a.size(0), b.size(1)}, a.options().dtype(at::kFloat));
}

at::Tensor wide(const at::Tensor& t) {
  return t.defined() && widens_bf16(t) ? t.to(at::kFloat) : t;
}

at::Tensor add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  const AsGiven as_given(a);
  const at::Tensor scratch = meta_scratch(a, b);
  const at::Tensor left = wide(a), right = wide(b);
  if (left.scalar_type() == sum.scalar_type()) return sum.addmm_(left, right);
  return sum.add_(at::mm(left, right));
}

}  // namespace

bool cpu_lacks_bf16() {
#if defined(__x86_64__)
  return !has_pair_products();
#else
  return false;
#endif
}

bool widens_bf16(const at::Tensor& t) {
  return runs_kernels(t) && t.scalar_type() == at::kBFloat16 && cpu_lacks_bf16();
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype) {
  const AsGiven as_given(a);
  at::Tensor scratch = meta_scratch(a, b);
  const at::Tensor c = at::mm(wide(a), wide(b));
  scratch.reset();
  return c.to(dtype);
}

at::Tensor transposed_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype,
                              at::Tensor sum) {
  const bool adds = sum.defined();
  const bool widening = a.scalar_type() == at::kBFloat16 && dtype == at::kFloat;
  if (widening && !runs_kernels(a) && has_widening_product(a)) {
    const AsGiven as_given(a);
    const at::Tensor c = widening_product(a.t(), b);
    return adds ? sum.add_(c) : c;
  }
  if (!widening || !runs_kernels(a) || !has_pair_products()) {
    return adds ? add_product(std::move(sum), a.t(), b) : product(a.t(), b, dtype);
  }
  const std::int64_t rows = a.size(0), m = a.size(1), n = b.size(1);
  at::Tensor c = adds ? std::move(sum) : at::empty({m, n}, a.options().dtype(dtype));
  if (rows == 0) return adds ? c : c.zero_();
  const at::Tensor left = a.contiguous(), right = b.contiguous();
  const at::Tensor scratch = at::empty({pair_product_scratch(rows, n)}, a.options());
  if (a.is_meta()) {
    add_meta_macs(static_cast<double>(rows) * static_cast<double>(m) * static_cast<double>(n));
  } else {
    transposed_pair_product(
        left.const_data_ptr<c10::BFloat16>(), right.const_data_ptr<c10::BFloat16>(), rows, m, n,
        scratch.mutable_data_ptr<c10::BFloat16>(), adds, c.mutable_data_ptr<float>());
  }
  return c;
}

void product_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  const AsGiven as_given(a);
  const at::Tensor scratch = meta_scratch(a, b);
  if (widens_bf16(a)) {
    out.copy_(at::mm(wide(a), wide(b)));
  } else {
    at::mm_out(out, a, b);
  }
}

void affine_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& weight,
                 const at::Tensor& bias) {
  const AsGiven as_given(a);
  const at::Tensor scratch = meta_scratch(a, weight.t());
  if (widens_bf16(a)) {
    out.copy_(at::addmm(wide(bias), wide(a), wide(weight).t()));
  } else {
    at::addmm_out(out, bias, a, weight.t());
  }
}

at::Tensor affine(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const AsGiven as_given(x);
  const at::Tensor scratch = meta_scratch(x, weight.t());
  return at::linear(wide(x), wide(weight), wide(bias)).to(x.scalar_type());
}

at::Tensor batched_product(const at::Tensor& a, const at::Tensor& b) {
  const auto dtype = compute_dtype(a);
  const AsGiven as_given(a);
  const at::Tensor left = a.to(dtype), right = b.to(dtype);
  at::Tensor scratch = meta_scratch(left, right);
  const at::Tensor c = at::bmm(wide(left), wide(right));
  scratch.reset();
  return c.to(dtype);
}

}  // namespace pareprop
