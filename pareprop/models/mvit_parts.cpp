#include "pareprop/models/mvit_parts.h"

#include <ATen/ops/max_pool2d.h>

#include "pareprop/ops/conv2d.h"
#include "pareprop/ops/mlp.h"

namespace pareprop::models {

PatchConv::PatchConv(std::int64_t channels, std::int64_t width, std::int64_t kernel,
                     std::int64_t stride, WeightMaker& make)
    : stride_(stride),
      weight_(make.uniform(*this, "weight", {width, channels, kernel, kernel})),
      bias_(make.constant(*this, "bias", {width}, 0.0)) {}

at::Tensor PatchConv::forward(const at::Tensor& images) {
  const ConvShape shape{.stride = stride_, .padding = weight_.size(2) / 2};
  return conv2d(images.permute({0, 2, 3, 1}), weight_, bias_, shape).flatten(1, 2);
}

Fusion::Fusion(std::int64_t width, WeightMaker& make)
    : fc1_(register_module("fc1", std::make_shared<LinearLayer>(width, 2 * width, make))),
      fc2_(register_module("fc2", std::make_shared<LinearLayer>(2 * width, width, make))) {}

at::Tensor Fusion::forward(const at::Tensor& x) {
  return x.add(mlp(x, fc1_->weight, fc1_->bias, fc2_->weight, fc2_->bias));
}

WideningMlp::WideningMlp(std::int64_t width, std::int64_t hidden, std::int64_t out, double eps,
                         DropRates drop, WeightMaker& make)
    : drop_(drop),
      norm_(register_module("norm", std::make_shared<NormLayer>(width, eps, make))),
      fc1_(register_module("fc1", std::make_shared<LinearLayer>(width, hidden, make))),
      fc2_(register_module("fc2", std::make_shared<LinearLayer>(hidden, out, make))) {}

at::Tensor WideningMlp::expand(const at::Tensor& normed) {
  return drop_output(*this, drop_, mlp(normed, fc1_->weight, fc1_->bias, fc2_->weight, fc2_->bias));
}

ResizingBlock::ResizingBlock(const ResizingShape& shape, WeightMaker& make) : shape_(shape) {
  const PoolingShape& f = shape.f;
  f_ = register_module("f", std::make_shared<PoolingAttention>(f, make));
  if (f.width == shape.out) {
    g_ =
        register_module("g", std::make_shared<Mlp>(f.width, shape.mlp_hidden, f.eps, f.drop, make));
  } else {
    widening_g_ = register_module(
        "g",
        std::make_shared<WideningMlp>(f.width, shape.mlp_hidden, shape.out, f.eps, f.drop, make));
  }
  if (f.in != shape.out) {
    shortcut_ = register_module("shortcut", std::make_shared<LinearLayer>(f.in, shape.out, make));
  }
}

at::Tensor ResizingBlock::pooled(const at::Tensor& tokens) {
  const auto batch = tokens.size(0), map = shape_.f.map, stride = shape_.f.q_stride;
  if (stride == 1) return tokens;
  if (shape_.pool == ShortcutPool::as_queries) return f_->pool_as_queries(tokens);
  const auto kernel = stride + 1, padding = kernel / 2;
  return at::max_pool2d(tokens.view({batch, map, map, -1}).permute({0, 3, 1, 2}), {kernel, kernel},
                        {stride, stride}, {padding, padding})
      .permute({0, 2, 3, 1})
      .flatten(1, 2);
}

at::Tensor ResizingBlock::forward(const at::Tensor& x, const BranchCall& call) {
  // What is not a branch stays in the type of the streams.
  const auto shortcut = [&](const at::Tensor& normed) {
    return shortcut_->forward(normed).to(x.scalar_type());
  };
  const at::Tensor normed = f_->normed(x);
  const at::Tensor around = shortcut_ && !widening_g_ ? shortcut(normed) : x;
  const at::Tensor h = pooled(around).add(f_->attend(normed, {call.extras}));
  if (!widening_g_) return h.add(g_->forward(h, {call.extras}));
  const at::Tensor h_normed = widening_g_->normed(h);
  return shortcut(h_normed).add(widening_g_->expand(h_normed));
}

}  // namespace pareprop::models
