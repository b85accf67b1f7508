#include "pareprop/ops/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rows(const Tensor& t) { return t.reshape({-1, t.size(-1)}); }

// A gradient computed at once, or left to the thread's queue and undefined. Only leaves can be
// deferred: autograd still has to carry the gradient of any other tensor further.
template <typename Compute>
Tensor now_or_later(const c10::IValue& parameter, Compute compute) {
  DeferredGradients* queue = current_deferred();
  if (queue == nullptr || parameter.isNone()) return compute();
  queue->add(parameter.toTensor(), std::move(compute));
  return {};
}

c10::IValue if_leaf(const Tensor& t) {
  return t.is_leaf() && t.requires_grad() ? c10::IValue(t) : c10::IValue();
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, bool output_needed) {
    const auto autocast = AutocastState::of_this_thread(x.device().type(), Precision::fp32);
    const auto dtype = autocast.enabled ? autocast.dtype : x.scalar_type();
    const Tensor x_used = x.to(dtype);
    const Tensor weight_used = weight.to(dtype);

    ctx->save_for_backward({x_used, weight_used});
    ctx->saved_data["weight"] = if_leaf(weight);
    ctx->saved_data["bias"] = bias ? if_leaf(*bias) : c10::IValue();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["x_dtype"] = x.scalar_type();
    ctx->saved_data["weight_dtype"] = weight.scalar_type();
    if (!output_needed) {
      auto sizes = x.sizes().vec();
      sizes.back() = weight.size(0);
      return at::empty({1}, x_used.options()).expand(sizes);
    }
    return at::linear(x_used, weight_used, bias ? bias->to(dtype) : Tensor());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor& x = saved[0];
    const Tensor& weight = saved[1];
    const Tensor dy = grads[0].to(x.scalar_type());
    const auto dtype = ctx->saved_data["weight_dtype"].toScalarType();
    variable_list result(4);
    if (ctx->needs_input_grad(0)) {
      const Tensor dx = at::mm(rows(dy), weight).reshape(x.sizes());
      result[0] = dx.to(ctx->saved_data["x_dtype"].toScalarType());
    }
    if (ctx->needs_input_grad(1)) {
      result[1] = now_or_later(ctx->saved_data["weight"],
                               [x, dy, dtype] { return at::mm(rows(dy).t(), rows(x)).to(dtype); });
    }
    if (ctx->saved_data["has_bias"].toBool() && ctx->needs_input_grad(2)) {
      result[2] = now_or_later(ctx->saved_data["bias"],
                               [dy, dtype] { return rows(dy).sum(0, false, dtype); });
    }
    return result;
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  bool output_needed) {
  const auto optional_bias = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  return LinearFunction::apply(x, weight, optional_bias, output_needed);
}

}  // namespace pareprop
