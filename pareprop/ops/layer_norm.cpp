#include "pareprop/ops/layer_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps) {
    Tensor y, mean, rstd;
    if (x.is_meta()) {
      auto rows = x.sizes().vec();
      rows.back() = 1;
      y = at::empty_like(x);
      mean = at::empty(rows, x.options());
      rstd = at::empty(rows, x.options());
    } else {
      std::tie(y, mean, rstd) = at::native_layer_norm(x, weight.sizes(), weight, bias, eps);
    }
    ctx->save_for_backward({x, weight, bias, mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &bias = saved[2];
    if (x.is_meta()) return {at::empty_like(x), at::empty_like(weight), at::empty_like(bias), {}};
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        grads[0], x, weight.sizes(), saved[3], saved[4], weight, bias,
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1), ctx->needs_input_grad(2)});
    return {dx, dweight, dbias, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  return LayerNormFunction::apply(x, weight, bias, eps);
}

}  // namespace pareprop
