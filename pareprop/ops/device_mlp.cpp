#include "pareprop/ops/device_mlp.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "pareprop/ops/device_path.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/tape_scopes.h"
#include "pareprop/ops/weight_gradient.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rows_of_mlp(const Tensor& t) { return t.reshape({-1, t.size(-1)}); }

// Rows whose gradient between the products is so small that parts of it are not worth their
// launches.
std::int64_t few_rows(const Tensor& sums) {
  constexpr std::int64_t kLittle = std::int64_t{16} << 20;
  return std::max<std::int64_t>(1, kLittle / (sums.size(1) * sums.element_size()));
}

enum DeviceMlpSaved { kMlpX, kMlpW1, kMlpW2, kMlpSums, kMlpHidden };
constexpr const char* kMlpNames[] = {"w1", "b1", "w2", "b2"};

struct DeviceMlpFunction : torch::autograd::Function<DeviceMlpFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w1, const Tensor& b1,
                        const Tensor& w2, const Tensor& b2, bool output_needed) {
    const auto dtype = compute_dtype(x);
    const bool lean = tape_is_lean();
    const Tensor x_used = x.to(dtype), w1_used = w1.to(dtype), w2_used = w2.to(dtype);
    const Tensor sums = affine(x_used, w1_used, b1.to(dtype));
    const Tensor hidden = lean && !output_needed ? Tensor() : at::gelu(sums);
    ctx->save_for_backward(
        {x_used, lean ? w1 : w1_used, lean ? w2 : w2_used, sums, lean ? Tensor() : hidden});
    const Tensor parameters[] = {w1, b1, w2, b2};
    for (std::size_t i = 0; i < 4; ++i) ctx->saved_data[kMlpNames[i]] = deferrable(parameters[i]);
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["weight_dtype"] = w1.scalar_type();
    return output_needed ? affine(hidden, w2_used, b2.to(dtype)) : unspecified(x_used, w2.size(0));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor& x = saved[kMlpX];
    const auto type = x.scalar_type(), dtype = ctx->saved_data["weight_dtype"].toScalarType();
    const Tensor sums = rows_of_mlp(saved[kMlpSums]).detach();
    const Tensor hidden =
        saved[kMlpHidden].defined() ? rows_of_mlp(saved[kMlpHidden]) : at::gelu(sums);
    const Tensor dy = rows_of_mlp(grads[0].to(type));
    const Tensor w2 = saved[kMlpW2].to(type);
    Tensor dsums = tape_is_consumed() ? sums : at::empty_like(sums);
    const std::int64_t rows = sums.size(0), at_a_time = rows_at_a_time(sums, rows, few_rows(sums));
    for (std::int64_t first = 0; first < rows; first += at_a_time) {
      const std::int64_t count = std::min(at_a_time, rows - first);
      const Tensor dhidden = product(dy.narrow(0, first, count), w2, type);
      Tensor part = dsums.narrow(0, first, count);
      at::gelu_backward_out(part, dhidden, sums.narrow(0, first, count));
    }
    variable_list result(6);
    if (ctx->needs_input_grad(0)) {
      const auto x_dtype = ctx->saved_data["x_dtype"].toScalarType();
      result[0] = product(dsums, saved[kMlpW1].to(type), x_dtype).reshape(x.sizes());
    }
    const auto remembered = [&](std::size_t i) { return ctx->saved_data[kMlpNames[i]]; };
    if (ctx->needs_input_grad(1)) {
      result[1] = weight_gradient(remembered(0), dsums, rows_of_mlp(x), dtype);
    }
    if (ctx->needs_input_grad(2)) result[2] = bias_gradient(remembered(1), dsums, dtype);
    if (ctx->needs_input_grad(3)) result[3] = weight_gradient(remembered(2), dy, hidden, dtype);
    if (ctx->needs_input_grad(4)) result[4] = bias_gradient(remembered(3), dy, dtype);
    return result;
  }
};

}  // namespace

at::Tensor device_mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1,
                      const at::Tensor& w2, const at::Tensor& b2, bool output_needed) {
  if (records({x, w1, b1, w2, b2})) {
    return DeviceMlpFunction::apply(x, w1, b1, w2, b2, output_needed);
  }
  const auto dtype = compute_dtype(x);
  if (!output_needed) return unspecified(x.to(dtype), w2.size(0));
  Tensor hidden = affine(x.to(dtype), w1.to(dtype), b1.to(dtype));
  at::gelu_(hidden);
  return affine(hidden, w2.to(dtype), b2.to(dtype));
}

}  // namespace pareprop
