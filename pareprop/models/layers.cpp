#include "pareprop/models/layers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/attention.h"
#include "pareprop/ops/layer_norm.h"
#include "pareprop/ops/linear.h"
#include "pareprop/ops/mlp.h"
#include "pareprop/ops/random_stream.h"

namespace pareprop::models {

at::Tensor WeightMaker::add(torch::nn::Module& module, const std::string& name, at::Tensor value) {
  ++made_;
  return module.register_parameter(name, std::move(value));
}

at::Generator WeightMaker::generator() const {
  return at::detail::createCPUGenerator(random_key({options_.seed, made_}));
}

at::Tensor WeightMaker::normal(torch::nn::Module& module, const std::string& name,
                               at::IntArrayRef sizes) {
  memory::TagScope tag(memory::Tag::parameters);
  at::Tensor value = at::empty(sizes, at::TensorOptions(options_.dtype).device(options_.device));
  if (options_.device != at::kMeta) {
    // Uniform between the cut-offs' probabilities, through the inverse of the normal distribution.
    constexpr double kStd = 0.02, kCut = 0.9544997361036416;  // erf(2 / sqrt(2))
    at::Tensor drawn = at::empty(sizes, at::TensorOptions(options_.dtype));
    value.copy_(drawn.uniform_(-kCut, kCut, generator()).erfinv_().mul_(kStd * std::sqrt(2.0)));
  }
  return add(module, name, value);
}

at::Tensor WeightMaker::uniform(torch::nn::Module& module, const std::string& name,
                                at::IntArrayRef sizes) {
  memory::TagScope tag(memory::Tag::parameters);
  at::Tensor value = at::empty(sizes, at::TensorOptions(options_.dtype).device(options_.device));
  if (options_.device != at::kMeta) {
    const double inputs = static_cast<double>(value.numel()) / static_cast<double>(sizes[0]);
    const double bound = 1.0 / std::sqrt(inputs);
    at::Tensor drawn = at::empty(sizes, at::TensorOptions(options_.dtype));
    value.copy_(drawn.uniform_(-bound, bound, generator()));
  }
  return add(module, name, value);
}

at::Tensor WeightMaker::constant(torch::nn::Module& module, const std::string& name,
                                 at::IntArrayRef sizes, double value) {
  memory::TagScope tag(memory::Tag::parameters);
  return add(module, name,
             at::full(sizes, value, at::TensorOptions(options_.dtype).device(options_.device)));
}

void ModuleWithConstants::follow_weights() {
  place_constants(parameters().front().options().requires_grad(false));
}
void ModuleWithConstants::to(at::Device device, at::ScalarType dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  follow_weights();
}
void ModuleWithConstants::to(at::ScalarType dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  follow_weights();
}
void ModuleWithConstants::to(at::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  follow_weights();
}

LinearLayer::LinearLayer(std::int64_t in, std::int64_t out, WeightMaker& make, bool with_bias)
    : weight(make.normal(*this, "weight", {out, in})) {
  if (with_bias) bias = make.constant(*this, "bias", {out}, 0.0);
}

at::Tensor LinearLayer::forward(const at::Tensor& x, bool output_needed) {
  return linear(x, weight, bias, output_needed);
}

NormLayer::NormLayer(std::int64_t width, double eps, WeightMaker& make)
    : weight(make.constant(*this, "weight", {width}, 1.0)),
      bias(make.constant(*this, "bias", {width}, 0.0)),
      eps_(eps) {}

at::Tensor NormLayer::forward(const at::Tensor& x) { return layer_norm(x, weight, bias, eps_); }

DropRates drop_of_block(DropRates drop, int block, int blocks) {
  if (blocks > 1) drop.drop_path *= static_cast<double>(block) / (blocks - 1);
  return drop;
}

at::Tensor drop_output(const torch::nn::Module& branch, const DropRates& drop,
                       const at::Tensor& y) {
  return branch.is_training() ? drop_path(dropout(y, drop.dropout), drop.drop_path) : y;
}

SelfAttention::SelfAttention(const BlockShape& shape, DropRates drop, WeightMaker& make)
    : norm_(register_module("norm", std::make_shared<NormLayer>(shape.width, shape.eps, make))),
      heads_(shape.heads),
      drop_(drop),
      qkv_(register_module("qkv", std::make_shared<LinearLayer>(shape.width, 3 * shape.width, make,
                                                                shape.qkv_bias))),
      proj_(
          register_module("proj", std::make_shared<LinearLayer>(shape.width, shape.width, make))) {}

at::Tensor SelfAttention::forward(const at::Tensor& x, const BranchCall& call) {
  return attend(norm_->forward(x), call);
}

at::Tensor SelfAttention::attend(at::Tensor x, const BranchCall& call) {
  const at::Tensor mask = call.extras.empty() ? at::Tensor() : call.extras[0];
  const at::Tensor mixed = self_attention(
      qkv_->forward(x), heads_, {.mask = mask, .dropout = is_training() ? drop_.dropout : 0.0});
  x.reset();
  return drop_output(*this, drop_, proj_->forward(mixed, call.output_needed));
}

Mlp::Mlp(std::int64_t width, std::int64_t hidden, double eps, DropRates drop, WeightMaker& make)
    : norm_(register_module("norm", std::make_shared<NormLayer>(width, eps, make))),
      drop_(drop),
      fc1_(register_module("fc1", std::make_shared<LinearLayer>(width, hidden, make))),
      fc2_(register_module("fc2", std::make_shared<LinearLayer>(hidden, width, make))) {}

at::Tensor Mlp::forward(const at::Tensor& x, const BranchCall& call) {
  return transform(norm_->forward(x), call);
}

at::Tensor Mlp::transform(const at::Tensor& x, const BranchCall& call) {
  return drop_output(
      *this, drop_, mlp(x, fc1_->weight, fc1_->bias, fc2_->weight, fc2_->bias, call.output_needed));
}

at::Tensor SelfAttentionThenNorm::forward(const at::Tensor& x, const BranchCall& call) {
  return norm_->forward(x.add(attend(x, call)));
}

at::Tensor MlpThenNorm::forward(const at::Tensor& x, const BranchCall& call) {
  return norm_->forward(x.add(transform(x, call)));
}

namespace {

template <typename F, typename G>
std::vector<Block> blocks_of(int depth, const BlockShape& shape, WeightMaker& make) {
  std::vector<Block> blocks;
  for (int i = 0; i < depth; ++i) {
    const DropRates drop = drop_of_block(shape.drop, i, depth);
    blocks.push_back({std::make_shared<F>(shape, drop, make),
                      std::make_shared<G>(shape.width, shape.mlp_hidden, shape.eps, drop, make)});
  }
  return blocks;
}

}  // namespace

std::vector<Block> attention_blocks(int depth, const BlockShape& shape, WeightMaker& make) {
  return blocks_of<SelfAttention, Mlp>(depth, shape, make);
}

std::vector<Block> norm_behind_blocks(int depth, const BlockShape& shape, WeightMaker& make) {
  return blocks_of<SelfAttentionThenNorm, MlpThenNorm>(depth, shape, make);
}

}  // namespace pareprop::models
