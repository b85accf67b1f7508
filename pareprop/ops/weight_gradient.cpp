#include "pareprop/ops/weight_gradient.h"

#include "pareprop/ops/deferred_gradients.h"
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

}  // namespace

at::Tensor weight_gradient(const c10::IValue& parameter, const at::Tensor& dy, const at::Tensor& x,
                           at::ScalarType dtype) {
  return now_or_later(parameter, [dy, x, dtype] { return transposed_product(dy, x, dtype); });
}

at::Tensor bias_gradient(const c10::IValue& parameter, const at::Tensor& dy, at::ScalarType dtype) {
  return now_or_later(parameter, [dy, dtype] { return sum_rows(dy, dtype); });
}

c10::IValue deferrable(const at::Tensor& parameter) {
  return parameter.is_leaf() && parameter.requires_grad() ? c10::IValue(parameter) : c10::IValue();
}

}  // namespace pareprop
