#include "pareprop/ops/weight_gradient.h"

#include "pareprop/ops/deferred_gradients.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/gradient_sums.h"
#include "pareprop/ops/product.h"
#include "pareprop/ops/row_ops.h"

namespace pareprop {
namespace {

template <typename Compute>
at::Tensor now_or_later(const c10::IValue& parameter, Compute compute) {
  DeferredGradients* queue = current_deferred();
  if (queue == nullptr || parameter.isNone()) return compute();
  queue->add(parameter.toTensor(), std::move(compute));
  return {};
}

at::Tensor sum_to_add_to(const c10::IValue& parameter, const at::Tensor& dy) {
  GradientSums* sums = current_gradient_sums();
  if (sums == nullptr || parameter.isNone() || !runs_kernels(dy)) return {};
  return sums->sum_of(parameter.toTensor());
}

}  // namespace

at::Tensor weight_gradient(const c10::IValue& parameter, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType dtype) {
  return now_or_later(parameter, [parameter, dy, x, dtype] {
    return transposed_product(dy, x, dtype, sum_to_add_to(parameter, dy));
  });
}

at::Tensor bias_gradient(const c10::IValue& parameter, const at::Tensor& dy, at::ScalarType dtype) {
  return now_or_later(parameter, [dy, dtype] { return sum_rows(dy, dtype); });
}

c10::IValue deferrable(const at::Tensor& parameter) {
  return parameter.is_leaf() && parameter.requires_grad() ? c10::IValue(parameter) : c10::IValue();
}

}  // namespace pareprop
