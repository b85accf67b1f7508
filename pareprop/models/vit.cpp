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

ViTConfig with_class_token(ViTConfig config) {
  config.class_token = true;
  return config;
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

ViTBase::ViTBase(const ViTConfig& config, WeightMaker& make)
    : ImageModel(config.image), config_(config) {
  check(config);
  if (config.class_token) class_token_ = make.normal(*this, "cls_token", {1, 1, config.width});
  if (config.distillation != Distillation::none) {
    distillation_token_ = make.normal(*this, "dist_token", {1, 1, config.width});
  }
  patch_embed_ = register_module("patch_embed", patch_layer(config, make));
  positions_ = make.normal(*this, "pos_embed", {1, tokens(), config.width});
}

void ViTBase::add_head(std::int64_t features, WeightMaker& make) {
  norm_ = register_module("norm", std::make_shared<NormLayer>(features, config_.eps, make));
  const auto add = [&](const char* name) {
    return register_module(name,
                           std::make_shared<LinearLayer>(features, config_.image.classes, make));
  };
  head_ = add("head");
  if (config_.distillation == Distillation::heads) head_dist_ = add("head_dist");
}

at::Tensor ViTBase::embed(const Batch& batch) const {
  const at::Tensor tokens = run_outside(*patch_embed_, patches(images(batch), config_.patch));
  if (prefix() == 0) return tokens.add(positions_);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& token : {class_token_, distillation_token_}) {
    if (token.defined()) parts.push_back(token.expand({tokens.size(0), 1, config_.width}));
  }
  parts.push_back(tokens);
  return at::cat(parts, 1).add(positions_);
}

at::Tensor ViTBase::prefix_token(std::int64_t i) const {
  return (i == 0 ? class_token_ : distillation_token_).select(1, 0).add(positions_.select(1, i));
}

at::Tensor ViTBase::scores(const std::function<at::Tensor(std::int64_t token)>& read) const {
  const at::Tensor scores = head_->forward(norm_->forward(read(0)));
  if (!head_dist_) return scores;
  return scores.add(head_dist_->forward(norm_->forward(read(1)))).mul(0.5);
}

RevViT::RevViT(const ViTConfig& config, const WeightOptions& weights)
    : RevViT(config, WeightMaker(weights)) {}

RevViT::RevViT(const ViTConfig& config, WeightMaker make) : ViTBase(config, make) {
  refuse_override("the reversible vit without a class token", "distillation token",
                  !config.class_token && config.distillation != Distillation::none);
  stack_ = add_stack(*this, "blocks", attention_blocks(config.depth, block_shape(config), make));
  add_head(features_of(config.ending, config.width), make);
}

at::Tensor RevViT::forward(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor x = embed(batch);
  const auto [y1, y2] = run_streams(stack_, x, {.extras = {}, .pass = pass_for(options)}, options);
  if (config_.class_token) {
    // Of x by itself: the gradient of a part of x would be as large as x, all through the stack's
    // backward pass.
    return scores([&, y1 = y1, y2 = y2](std::int64_t token) {
      return end_of_streams(config_.ending, y1.select(1, token), y2.select(1, token),
                            prefix_token(token));
    });
  }
  if (config_.ending == Ending::concat) {
    return head_->forward(pooled_norm(y1, y2, norm_->weight, norm_->bias, config_.eps));
  }
  return head_->forward(norm_->forward(end_of_streams(config_.ending, y1, y2, x)).mean(1));
}

PlainViT::PlainViT(const ViTConfig& config, const WeightOptions& weights)
    : PlainViT(config, WeightMaker(weights)) {}

PlainViT::PlainViT(const ViTConfig& config, WeightMaker make)
    : ViTBase(with_class_token(config), make) {
  stack_ = add_stack(*this, "blocks", attention_blocks(config.depth, block_shape(config), make),
                     Coupling::residual);
  add_head(config.width, make);
}

at::Tensor PlainViT::forward(const Batch& batch, const ForwardOptions& options) {
  const at::Tensor y =
      run_plain(stack_, embed(batch), {.extras = {}, .pass = pass_for(options)}, options);
  return scores([&](std::int64_t token) { return y.select(1, token); });
}

}  // namespace pareprop::models
