#include "pareprop/ops/mlp.h"

#include <torch/csrc/autograd/custom_function.h>

#include "pareprop/ops/consumed_tape.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/recording.h"
#include "pareprop/ops/row_ops.h"
#include "pareprop/ops/weight_gradient.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rows(const Tensor& t) { return t.reshape({-1, t.size(-1)}); }

Tensor output(const Tensor& x, const Tensor& hidden, const Tensor& w2, const Tensor& b2,
              bool output_needed) {
  if (!output_needed) return unspecified(x, w2.size(0));
  auto sizes = x.sizes().vec();
  sizes.back() = w2.size(0);
  return affine(hidden, w2, b2).view(sizes);
}

enum Parameter { kW1, kB1, kW2, kB2 };
constexpr const char* kNames[] = {"w1", "b1", "w2", "b2"};

struct MlpFunction : torch::autograd::Function<MlpFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w1, const Tensor& b1,
                        const Tensor& w2, const Tensor& b2, bool output_needed) {
    const auto dtype = compute_dtype(x);
    const Tensor x_used = x.to(dtype), w1_used = w1.to(dtype), w2_used = w2.to(dtype);
    Tensor hidden = product(rows(x_used), w1_used.t(), dtype);
    const Tensor slope = bias_gelu_(hidden, b1, true);
    ctx->save_for_backward({x_used, w1_used, w2_used, hidden, slope});
    const Tensor parameters[] = {w1, b1, w2, b2};
    for (const int i : {kW1, kB1, kW2, kB2}) {
      ctx->saved_data[kNames[i]] = deferrable(parameters[i]);
    }
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["weight_dtype"] = w1.scalar_type();
    return output(x_used, hidden, w2_used, b2.to(dtype), output_needed);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w1 = saved[1], &w2 = saved[2], &hidden = saved[3];
    const auto dtype = ctx->saved_data["weight_dtype"].toScalarType();
    const Tensor dy = rows(grads[0].to(x.scalar_type()));
    const Tensor dhidden = scaled_product(dy, w2, saved[4].detach(), tape_is_consumed());
    auto wanted = [&](Parameter p) {
      return ctx->needs_input_grad(static_cast<std::size_t>(p) + 1);
    };
    auto remembered = [&](Parameter p) { return ctx->saved_data[kNames[p]]; };
    variable_list result(6);
    if (ctx->needs_input_grad(0)) {
      const auto x_dtype = ctx->saved_data["x_dtype"].toScalarType();
      result[0] = product(dhidden, w1, x_dtype).view(x.sizes());
    }
    if (wanted(kW1)) result[1] = weight_gradient(remembered(kW1), dhidden, rows(x), dtype);
    if (wanted(kB1)) result[2] = bias_gradient(remembered(kB1), dhidden, dtype);
    if (wanted(kW2)) result[3] = weight_gradient(remembered(kW2), dy, hidden, dtype);
    if (wanted(kB2)) result[4] = bias_gradient(remembered(kB2), dy, dtype);
    return result;
  }
};

}  // namespace

at::Tensor mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& b1,
               const at::Tensor& w2, const at::Tensor& b2, bool output_needed) {
  if (records({x, w1, b1, w2, b2})) return MlpFunction::apply(x, w1, b1, w2, b2, output_needed);
  const auto dtype = compute_dtype(x);
  const Tensor x_used = x.to(dtype);
  Tensor hidden = product(rows(x_used), w1.to(dtype).t(), dtype);
  bias_gelu_(hidden, b1, false);
  return output(x_used, hidden, w2.to(dtype), b2.to(dtype), output_needed);
}

}  // namespace pareprop
