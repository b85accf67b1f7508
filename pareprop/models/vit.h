#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "pareprop/models/ending.h"
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
  // The ordinary network always has a class token; the reversible one if this says so.
  bool class_token = false;
  Distillation distillation = Distillation::none;  // beside a class token
  Ending ending = Ending::concat;                  // of the reversible network

  // Of patches.
  std::int64_t tokens() const { return (image.image_size / patch) * (image.image_size / patch); }
};

// Throws std::invalid_argument naming what does not fit: image and patch, width and heads, negative
// depth.
void check(const ViTConfig& config);

// What the two networks share: patches as tokens with learned positions, perhaps behind a class
// token and one of distillation (DeiT), and a norm and heads.
class ViTBase : public ImageModel {
 public:
  std::int64_t tokens() const override { return config_.tokens() + prefix(); }
  const ViTConfig& config() const { return config_; }
  // Tokens before those of patches.
  std::int64_t prefix() const {
    return (config_.class_token ? 1 : 0) + (config_.distillation == Distillation::none ? 0 : 1);
  }

 protected:
  ViTBase(const ViTConfig& config, WeightMaker& make);
  // For constructors, behind the stack: norm and heads of so many channels.
  void add_head(std::int64_t features, WeightMaker& make);

  at::Tensor embed(const Batch& batch) const;
  // What embed() gives as token `i` of the prefix, (1, width).
  at::Tensor prefix_token(std::int64_t i) const;
  // The scores by the tokens of the prefix, the mean of both heads if there are two. `read` gives a
  // token behind the stack, (batch, features).
  at::Tensor scores(const std::function<at::Tensor(std::int64_t token)>& read) const;

  ViTConfig config_;
  Stack stack_{nullptr};
  std::shared_ptr<LinearLayer> head_;
  std::shared_ptr<NormLayer> norm_;

 private:
  at::Tensor class_token_, distillation_token_, positions_;
  std::shared_ptr<LinearLayer> patch_embed_, head_dist_;
};

// Reversible ViT: both streams start as the embedding. Without a class token: norm of their ending,
// mean over tokens, linear head.
class RevViT : public ViTBase {
 public:
  RevViT(const ViTConfig& config, const WeightOptions& weights);
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

 private:
  RevViT(const ViTConfig& config, WeightMaker make);
};

// Ordinary ViT, or DeiT, with a class token: one residual stream.
class PlainViT : public ViTBase {
 public:
  PlainViT(const ViTConfig& config, const WeightOptions& weights);
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

 private:
  PlainViT(const ViTConfig& config, WeightMaker make);
};

}  // namespace pareprop::models
