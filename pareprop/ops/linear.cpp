#include "pareprop/ops/linear.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pareprop/ops/precision.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/tape_scopes.h"
#include "pareprop/ops/weight_gradient.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool output_needed) {
    const auto dtype = compute_dtype(x);
    const Tensor x_used = x.to(dtype);
    const Tensor weight_used = weight.to(dtype);

    ctx->save_for_backward({x_used, tape_is_lean() ? weight : weight_used});
    ctx->saved_data["weight"] = deferrable(weight);
    ctx->saved_data["bias"] = bias ? deferrable(*bias) : c10::IValue();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["weight_dtype"] = weight.scalar_type();
    if (!output_needed) return unspecified(x_used, weight.size(0));
    return affine(x_used, weight_used, bias ? bias->to(dtype) : Tensor());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor dy = as_rows(grads[0].to(x.scalar_type()));
    const auto dtype = ctx->saved_data["weight_dtype"].toScalarType();
    variable_list result(4);
    if (ctx->needs_input_grad(0)) {
      const auto x_dtype = ctx->saved_data["x_dtype"].toScalarType();
      const Tensor weight = saved[1].to(x.scalar_type());
      result[0] = product(dy, weight, x_dtype).reshape(x.sizes());
    }
    if (ctx->needs_input_grad(1)) {
      result[1] = weight_gradient(ctx->saved_data["weight"], dy, as_rows(x), dtype);
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) {
      result[2] = bias_gradient(ctx->saved_data["bias"], dy, dtype);
    }
    return result;
  }
};

}  // namespace

at::Tensor unspecified(const at::Tensor& x, std::int64_t width) {
  auto sizes = x.sizes().vec();
  sizes.back() = width;
  return at::empty({1}, x.options()).expand(sizes);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  bool output_needed) {
  const auto optional_bias = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  if (!records({x, weight, bias})) {
    const auto dtype = compute_dtype(x);
    if (!output_needed) return unspecified(x.to(dtype), weight.size(0));
    return affine(x.to(dtype), weight.to(dtype), bias.defined() ? bias.to(dtype) : bias);
  }
  return LinearFunction::apply(x, weight, optional_bias, output_needed);
}

}  // namespace pareprop
