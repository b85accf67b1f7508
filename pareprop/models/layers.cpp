#include "pareprop/models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/random_stream.h"

namespace pareprop::models {

at::Tensor WeightMaker::add(torch::nn::Module& module, const std::string& name, at::Tensor value) {
  ++made_;
  return module.register_parameter(name, std::move(value));
}

at::Tensor WeightMaker::normal(torch::nn::Module& module, const std::string& name,
                               at::IntArrayRef sizes) {
  memory::TagScope tag(memory::Tag::parameters);
  at::Tensor value = at::empty(sizes, at::TensorOptions(options_.dtype).device(options_.device));
  if (options_.device != at::kMeta) {
    // Uniform between the cut-offs' probabilities, through the inverse of the normal distribution.
    constexpr double kStd = 0.02, kCut = 0.9544997361036416;  // erf(2 / sqrt(2))
    auto generator = at::detail::createCPUGenerator(random_key({options_.seed, made_}));
    at::Tensor drawn = at::empty(sizes, at::TensorOptions(options_.dtype));
    value.copy_(drawn.uniform_(-kCut, kCut, generator).erfinv_().mul_(kStd * std::sqrt(2.0)));
  }
  return add(module, name, value);
}

at::Tensor WeightMaker::constant(torch::nn::Module& module, const std::string& name,
                                 at::IntArrayRef sizes, double value) {
  memory::TagScope tag(memory::Tag::parameters);
  return add(module, name,
             at::full(sizes, value, at::TensorOptions(options_.dtype).device(options_.device)));
}

LinearLayer::LinearLayer(std::int64_t in, std::int64_t out, WeightMaker& make)
    : weight(make.normal(*this, "weight", {out, in})),
      bias(make.constant(*this, "bias", {out}, 0.0)) {}

at::Tensor LinearLayer::forward(const at::Tensor& x, bool output_needed) {
  return linear(x, weight, bias, output_needed);
}

NormLayer::NormLayer(std::int64_t width, double eps, WeightMaker& make)
    : weight(make.constant(*this, "weight", {width}, 1.0)),
      bias(make.constant(*this, "bias", {width}, 0.0)),
      eps_(eps) {}

at::Tensor NormLayer::forward(const at::Tensor& x) { return layer_norm(x, weight, bias, eps_); }

namespace {

at::Tensor finish(const torch::nn::Module& module, const DropRates& drop, const at::Tensor& y) {
  return module.is_training() ? drop_path(dropout(y, drop.dropout), drop.drop_path) : y;
}

}  // namespace

SelfAttention::SelfAttention(std::int64_t width, std::int64_t heads, double eps, DropRates drop,
                             WeightMaker& make)
    : heads_(heads),
      drop_(drop),
      norm_(register_module("norm", std::make_shared<NormLayer>(width, eps, make))),
      qkv_(register_module("qkv", std::make_shared<LinearLayer>(width, 3 * width, make))),
      proj_(register_module("proj", std::make_shared<LinearLayer>(width, width, make))) {}

at::Tensor SelfAttention::forward(const at::Tensor& x, const BranchCall& call) {
  const auto batch = x.size(0), tokens = x.size(1), width = x.size(2), head = width / heads_;
  const auto qkv = qkv_->forward(norm_->forward(x))
                       .view({batch, tokens, 3, heads_, head})
                       .permute({2, 0, 3, 1, 4})  // (3, batch, heads, tokens, head)
                       .unbind(0);
  const double scale = 1.0 / std::sqrt(static_cast<double>(head));
  at::Tensor scores = at::matmul(qkv[0].mul(scale), qkv[1].transpose(-1, -2));
  if (!call.extras.empty() && call.extras[0].defined()) scores = scores.add(call.extras[0]);
  at::Tensor p = at::softmax(scores, -1);
  if (is_training()) p = dropout(p, drop_.dropout);
  const at::Tensor mixed = at::matmul(p.to(qkv[2].scalar_type()), qkv[2])
                               .transpose(1, 2)
                               .reshape({batch, tokens, width});
  return finish(*this, drop_, proj_->forward(mixed, call.output_needed));
}

Mlp::Mlp(std::int64_t width, std::int64_t hidden, double eps, DropRates drop, WeightMaker& make)
    : drop_(drop),
      norm_(register_module("norm", std::make_shared<NormLayer>(width, eps, make))),
      fc1_(register_module("fc1", std::make_shared<LinearLayer>(width, hidden, make))),
      fc2_(register_module("fc2", std::make_shared<LinearLayer>(hidden, width, make))) {}

at::Tensor Mlp::forward(const at::Tensor& x, const BranchCall& call) {
  const at::Tensor hidden = at::gelu(fc1_->forward(norm_->forward(x)));
  return finish(*this, drop_, fc2_->forward(hidden, call.output_needed));
}

std::vector<Block> attention_blocks(int depth, const BlockShape& shape, WeightMaker& make) {
  std::vector<Block> blocks;
  for (int i = 0; i < depth; ++i) {
    DropRates drop = shape.drop;
    if (depth > 1) drop.drop_path *= static_cast<double>(i) / (depth - 1);
    blocks.push_back(
        {std::make_shared<SelfAttention>(shape.width, shape.heads, shape.eps, drop, make),
         std::make_shared<Mlp>(shape.width, shape.mlp_hidden, shape.eps, drop, make)});
  }
  return blocks;
}

}  // namespace pareprop::models
