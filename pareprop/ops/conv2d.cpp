#include "pareprop/ops/conv2d.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pareprop/ops/precision.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Note [Convolutions in the type of the weight]
// torch has fast CPU convolutions of fp32 maps whose channels lie together. Those of bf16, where
// the processor has no bf16 arithmetic, and of fp64 run group by group: a depth-wise one was seen
// to take 700 times as long. So bf16 maps are kept as they are for the backward pass, and widened
// to convolve; fp64 ones, which only checks use, are laid out channel by channel, seven times as
// fast as the other way.
// Maps that are parts of others, which torch would lay out anew by itself, are laid out here: the
// meta device, which has no convolutions of torch, counts them then.
Tensor to_torch(const Tensor& map, at::ScalarType dtype) {
  const Tensor channels_second = map.to(dtype).contiguous().permute({0, 3, 1, 2});
  return dtype == at::kDouble ? channels_second.contiguous() : channels_second;
}

Tensor from_torch(const Tensor& map) { return map.permute({0, 2, 3, 1}).contiguous(); }

// torch has meta convolutions in Python only. A product of the same shape and cost stands for it.
Tensor on_meta(const Tensor& x, const Tensor& weight, const ConvShape& shape) {
  auto side = [&](std::int64_t in) {
    return (in + 2 * shape.padding - weight.size(2)) / shape.stride + 1;
  };
  const auto batch = x.size(0), height = side(x.size(1)), width = side(x.size(2));
  const auto out = weight.size(0), kernel = weight.numel() / out;
  const Tensor some = at::empty({1}, weight.options());
  return at::bmm(some.expand({shape.groups, batch * height * width, kernel}),
                 some.expand({shape.groups, kernel, out / shape.groups}))
      .view({batch, height, width, out});
}

struct Conv2dFunction : torch::autograd::Function<Conv2dFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, std::int64_t stride,
                        std::int64_t padding, std::int64_t groups) {
    const ConvShape shape{stride, padding, groups};
    ctx->save_for_backward({x, weight});
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["padding"] = padding;
    ctx->saved_data["groups"] = groups;
    ctx->saved_data["has_bias"] = bias.has_value();
    const Tensor map = to_torch(x, weight.scalar_type());
    if (x.is_meta()) return on_meta(x, weight, shape);
    const AutocastScope no_autocast(x.device().type(), {});
    return from_torch(at::convolution(map, weight, bias, {stride, stride}, {padding, padding},
                                      {1, 1}, false, {0, 0}, groups));
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const auto stride = ctx->saved_data["stride"].toInt();
    const auto padding = ctx->saved_data["padding"].toInt();
    const auto groups = ctx->saved_data["groups"].toInt();
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    variable_list result(6);
    const auto dtype = weight.scalar_type();
    Tensor dy = to_torch(grads[0], dtype), map = to_torch(x, dtype);
    if (x.is_meta()) {
      const Tensor dx = at::empty(x.sizes(), weight.options());
      result[1] = at::empty_like(weight);
      if (has_bias) result[2] = at::empty({weight.size(0)}, weight.options());
      dy.reset();
      map.reset();
      result[0] = dx.to(x.scalar_type());
      return result;
    }
    const AutocastScope no_autocast(x.device().type(), {});
    auto [dx, dweight, dbias] = at::convolution_backward(
        dy, map, weight, at::IntArrayRef{weight.size(0)}, {stride, stride}, {padding, padding},
        {1, 1}, false, {0, 0}, groups,
        {ctx->needs_input_grad(0), ctx->needs_input_grad(1), has_bias && ctx->needs_input_grad(2)});
    dy.reset();
    map.reset();
    if (dx.defined()) result[0] = from_torch(dx).to(x.scalar_type());
    result[1] = dweight;
    result[2] = dbias;
    return result;
  }
};

}  // namespace

at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  const ConvShape& shape) {
  const auto optional_bias = bias.defined() ? std::optional<Tensor>(bias) : std::nullopt;
  return Conv2dFunction::apply(x, weight, optional_bias, shape.stride, shape.padding, shape.groups);
}

}  // namespace pareprop
