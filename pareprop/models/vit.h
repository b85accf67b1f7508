#pragma once

#include <cstdint>
#include <memory>

#include "pareprop/models/image_model.h"
#include "pareprop/models/layers.h"
#include "pareprop/models/overrides.h"

namespace pareprop::models {

struct ViTConfig {
  ImageShape image = {};
  std::int64_t patch = 16;
  std::int64_t width = 192;
  int depth = 12;
  std::int64_t heads = 3;
  std::int64_t mlp_hidden = 768;
  double eps = 1e-6;    // of the norms
  DropRates drop = {};  // drop_path grows linearly from 0 to this over the blocks
  bool qkv_bias = true;
  Distillation distillation = Distillation::none;  // of the ordinary network

  // Of patches.
  std::int64_t tokens() const { return (image.image_size / patch) * (image.image_size / patch); }
};

// Throws std::invalid_argument naming what does not fit: image and patch, width and heads, negative
// depth.
void check(const ViTConfig& config);

// Reversible ViT: patches as tokens with learned positions, no class token; both streams start as
// the embedding; at the end norm of their concatenation, mean over tokens, linear head.
class RevViT : public ImageModel {
 public:
  RevViT(const ViTConfig& config, const WeightOptions& weights);
  std::int64_t tokens() const override { return config_.tokens(); }
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

 private:
  ViTConfig config_;
  at::Tensor positions_;
  std::shared_ptr<LinearLayer> patch_embed_, head_;
  std::shared_ptr<NormLayer> norm_;
  Stack stack_{nullptr};
};

// Ordinary ViT, or DeiT: a class token and perhaps one of distillation before those of patches, one
// residual stream, norm and head of the class token, or the mean of the heads of both.
class PlainViT : public ImageModel {
 public:
  PlainViT(const ViTConfig& config, const WeightOptions& weights);
  std::int64_t tokens() const override { return config_.tokens() + prefix(); }
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

  const ViTConfig& config() const { return config_; }
  // Tokens before those of patches.
  std::int64_t prefix() const { return config_.distillation == Distillation::none ? 1 : 2; }

 private:
  ViTConfig config_;
  at::Tensor class_token_, distillation_token_, positions_;
  std::shared_ptr<LinearLayer> patch_embed_, head_, head_dist_;
  std::shared_ptr<NormLayer> norm_;
  Stack stack_{nullptr};
};

}  // namespace pareprop::models
