#include "pareprop/ops/layer_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "pareprop/ops/precision.h"
#include "pareprop/ops/row_ops.h"
#include "pareprop/ops/tape_scopes.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayerNormFunction : torch::autograd::Function<LayerNormFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, double eps, at::ScalarType dtype) {
    const auto [y, mean, rstd] = norm_rows(x, weight, bias, eps, dtype);
    ctx->save_for_backward({x, weight, mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto [dx, dweight, dbias] =
        norm_rows_backward(grads[0], saved[0], saved[1], saved[2], saved[3]);
    return {dx, dweight, dbias, {}, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                      double eps) {
  const auto dtype = compute_dtype(x);
  if (!records({x, weight, bias})) return std::get<0>(norm_rows(x, weight, bias, eps, dtype));
  return LayerNormFunction::apply(x, weight, bias, eps, dtype);
}

}  // namespace pareprop
