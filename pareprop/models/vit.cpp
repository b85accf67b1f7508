#include "pareprop/models/vit.h"

#include <ATen/ops/cat.h>

#include <stdexcept>
#include <string>

#include "pareprop/ops/pooled_norm.h"

namespace pareprop::models {
namespace {

BlockShape block_shape(const ViTConfig& c) {
  return {c.width, c.heads, c.mlp_hidden, c.eps, c.drop, c.qkv_bias};
}

std::shared_ptr<LinearLayer> patch_layer(const ViTConfig& c, WeightMaker& make) {
  return std::make_shared<LinearLayer>(c.image.channels * c.patch * c.patch, c.width, make);
}

}  // namespace

void check(const ViTConfig& c) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("vit: " + text); };
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  const std::int64_t size = c.image.image_size;
  if (c.depth < 0) fail("expected a depth of 0 or more, got " + text(c.depth));
  if (size <= 0 || c.patch <= 0 || size % c.patch != 0) {
    fail("image size " + text(size) + " is not a multiple of the patch size " + text(c.patch));
  }
  if (c.width <= 0 || c.heads <= 0 || c.width % c.heads != 0) {
    fail("width " + text(c.width) + " is not a multiple of " + text(c.heads) + " heads");
  }
  if (c.image.channels <= 0 || c.image.classes <= 0 || c.mlp_hidden <= 0) {
    fail("channels, classes and MLP width must be positive");
  }
}

RevViT::RevViT(const ViTConfig& config, const WeightOptions& weights)
    : ImageModel(config.image), config_(config) {
  check(config);
  refuse_override("the reversible vit", "distillation token",
                  config.distillation != Distillation::none);
  WeightMaker make(weights);
  patch_embed_ = register_module("patch_embed", patch_layer(config, make));
  positions_ = make.normal(*this, "pos_embed", {1, config.tokens(), config.width});
  stack_ = add_stack(*this, "blocks", attention_blocks(config.depth, block_shape(config), make));
  norm_ = register_module("norm", std::make_shared<NormLayer>(2 * config.width, config.eps, make));
  head_ = register_module(
      "head", std::make_shared<LinearLayer>(2 * config.width, config.image.classes, make));
}

at::Tensor RevViT::forward(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor x =
      run_outside(*patch_embed_, patches(images(batch), config_.patch)).add(positions_);
  const CallOptions call{.extras = {}, .pass = pass_for(options)};
  const auto [y1, y2] =
      options.reference ? stack_->reference(x, x, call) : stack_->forward(x, x, call);
  return head_->forward(pooled_norm(y1, y2, norm_->weight, norm_->bias, config_.eps));
}

PlainViT::PlainViT(const ViTConfig& config, const WeightOptions& weights)
    : ImageModel(config.image), config_(config) {
  check(config);
  WeightMaker make(weights);
  class_token_ = make.normal(*this, "cls_token", {1, 1, config.width});
  if (config.distillation != Distillation::none) {
    distillation_token_ = make.normal(*this, "dist_token", {1, 1, config.width});
  }
  patch_embed_ = register_module("patch_embed", patch_layer(config, make));
  positions_ = make.normal(*this, "pos_embed", {1, tokens(), config.width});
  stack_ = add_stack(*this, "blocks", attention_blocks(config.depth, block_shape(config), make),
                     Coupling::residual);
  norm_ = register_module("norm", std::make_shared<NormLayer>(config.width, config.eps, make));
  const auto add_head = [&](const char* name) {
    return register_module(name,
                           std::make_shared<LinearLayer>(config.width, config.image.classes, make));
  };
  head_ = add_head("head");
  if (config.distillation == Distillation::heads) head_dist_ = add_head("head_dist");
}

at::Tensor PlainViT::forward(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor tokens = run_outside(*patch_embed_, patches(images(batch), config_.patch));
  std::vector<at::Tensor> parts;
  for (const at::Tensor& token : {class_token_, distillation_token_}) {
    if (token.defined()) parts.push_back(token.expand({tokens.size(0), 1, config_.width}));
  }
  parts.push_back(tokens);
  const at::Tensor x = at::cat(parts, 1).add(positions_);
  const at::Tensor y = run_plain(stack_, x, {.extras = {}, .pass = pass_for(options)}, options);
  const at::Tensor scores = head_->forward(norm_->forward(y.select(1, 0)));
  if (!head_dist_) return scores;
  return scores.add(head_dist_->forward(norm_->forward(y.select(1, 1)))).mul(0.5);
}

}  // namespace pareprop::models
