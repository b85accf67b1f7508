#include "pareprop/ops/pooled_norm.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "pareprop/ops/device_path.h"
#include "pareprop/ops/row_ops.h"
#include "pareprop/ops/tape_scopes.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The streams side by side, their norm and its gradient would be the largest tensors of a
// reversible step, six times a stream: only those of some samples are there at a time.
constexpr std::int64_t kRowsInCache = 512;

template <typename Body>
void by_samples(const Tensor& y, const Body& body) {
  const std::int64_t samples = y.size(0);
  const std::int64_t suits_cache =
      std::max<std::int64_t>(1, kRowsInCache / std::max<std::int64_t>(1, y.size(1)));
  const std::int64_t some = rows_at_a_time(y, samples, suits_cache);
  // One whole part stands for all on the meta device, as in an MLP.
  std::int64_t first = y.is_meta() ? std::max<std::int64_t>(0, samples / some - 1) * some : 0;
  for (; first < samples; first += some) {
    const std::int64_t count = std::min(some, samples - first);
    body([=](const Tensor& t) { return t.narrow(0, first, count); });
  }
}

Tensor run_pooled_norm(const Tensor& y1, const Tensor& y2, const Tensor& weight, const Tensor& bias,
                       double eps) {
  Tensor pooled = at::empty({y1.size(0), 2 * y1.size(2)}, y1.options());
  by_samples(y1, [&](const auto& part) {
    const Tensor x = at::cat({part(y1), part(y2)}, -1);
    part(pooled).copy_(std::get<0>(norm_rows(x, weight, bias, eps, x.scalar_type())).mean(1));
  });
  return pooled;
}

struct PooledNormFunction : torch::autograd::Function<PooledNormFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& y1, const Tensor& y2,
                        const Tensor& weight, const Tensor& bias, double eps) {
    ctx->save_for_backward({y1, y2, weight, bias});
    ctx->saved_data["eps"] = eps;
    return run_pooled_norm(y1, y2, weight, bias, eps);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &y1 = saved[0], &y2 = saved[1], &weight = saved[2], &bias = saved[3];
    const double eps = ctx->saved_data["eps"].toDouble();
    const std::int64_t tokens = y1.size(1), width = y1.size(2);
    const Tensor each = grads[0].div(static_cast<double>(tokens)).unsqueeze(1);
    Tensor dy1 = at::empty_like(y1), dy2 = at::empty_like(y2);
    Tensor dweight = at::zeros_like(weight), dbias = at::zeros_like(bias);
    by_samples(y1, [&](const auto& part) {
      const Tensor x = at::cat({part(y1), part(y2)}, -1);
      const auto [y, mean, rstd] = norm_rows(x, weight, bias, eps, x.scalar_type());
      const auto [dx, some_dweight, some_dbias] =
          norm_rows_backward(part(each).expand_as(x), x, weight, mean, rstd);
      part(dy1).copy_(dx.narrow(-1, 0, width));
      part(dy2).copy_(dx.narrow(-1, width, width));
      dweight.add_(some_dweight);
      dbias.add_(some_dbias);
    });
    return {dy1, dy2, dweight, dbias, {}};
  }
};

}  // namespace

at::Tensor pooled_norm(const at::Tensor& y1, const at::Tensor& y2, const at::Tensor& weight,
                       const at::Tensor& bias, double eps) {
  if (!records({y1, y2, weight, bias})) return run_pooled_norm(y1, y2, weight, bias, eps);
  return PooledNormFunction::apply(y1, y2, weight, bias, eps);
}

}  // namespace pareprop
