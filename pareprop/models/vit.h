#pragma once

#include <cstdint>
#include <memory>

#include "pareprop/models/layers.h"
#include "pareprop/models/model.h"

namespace pareprop::models {

struct ViTConfig {
  std::int64_t image_size = 224;
  std::int64_t patch = 16;
  std::int64_t channels = 3;
  std::int64_t width = 192;
  int depth = 12;
  std::int64_t heads = 3;
  std::int64_t mlp_hidden = 768;
  std::int64_t classes = 1000;
  DropRates drop = {};  // drop_path grows linearly from 0 to this over the blocks

  std::int64_t tokens() const { return (image_size / patch) * (image_size / patch); }
  // Multiply-accumulates of one image's forward pass, attention products included.
  double macs() const;
  // Bytes of one image's float32 activations in the blocks: streams and tapes of all of them, and
  // two streams, their gradients and the tape of one block.
  double activation_bytes_stored() const;
  double activation_bytes_reversible() const;
};

// Throws std::invalid_argument naming what does not fit: image and patch, width and heads, negative
// depth.
void check(const ViTConfig& config);

// Reversible ViT: patches as tokens with learned positions, no class token; both streams start as
// the embedding; at the end norm of their concatenation, mean over tokens, linear head.
class RevViT : public Model {
 public:
  RevViT(const ViTConfig& config, const WeightOptions& weights);

  // `input` is (batch, channels, image_size, image_size).
  at::Tensor forward(const at::Tensor& input, const ForwardOptions& options = {}) override;
  at::Tensor example_input(std::int64_t batch, std::uint64_t seed) const override;
  at::Tensor example_target(std::int64_t batch, std::uint64_t seed) const override;

  const ViTConfig& config() const { return config_; }

 private:
  at::Tensor embed(const at::Tensor& images);

  ViTConfig config_;
  at::Tensor positions_;
  std::shared_ptr<LinearLayer> patch_embed_, head_;
  std::shared_ptr<NormLayer> norm_;
  Stack stack_{nullptr};
};

}  // namespace pareprop::models
