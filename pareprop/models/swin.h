#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pareprop/models/ending.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/layers.h"
#include "pareprop/models/swin_attention.h"

namespace pareprop::models {

struct SwinConfig {
  ImageShape image = {};
  std::int64_t patch = 4;
  std::int64_t width = 96;                           // of the first stage; doubles at each next one
  std::vector<int> depths = {2, 2, 6, 2};            // blocks of each stage
  std::vector<std::int64_t> heads = {3, 6, 12, 24};  // of each stage
  std::int64_t window = 7;  // side; where the map is smaller, window and bias table are cut down
  double mlp_ratio = 4.0;
  double eps = 1e-5;    // of the norms
  DropRates drop = {};  // drop_path grows linearly from 0 to this over the blocks
  bool qkv_bias = true;
  Ending ending = Ending::concat;  // of the stacks of the reversible network

  std::size_t stages() const { return depths.size(); }
  // Tokens along a side of the map, and width, in a stage. Where the image is no multiple of the
  // patch, the last ones are padded.
  std::int64_t side(std::size_t stage) const;
  std::int64_t width_of(std::size_t stage) const { return width << stage; }
};

// Throws std::invalid_argument naming what does not fit: width and heads, number of depths and
// heads, anything that must be positive.
void check(const SwinConfig& config);

// Stage boundary: the tokens of every 2 x 2 of the map side by side (odd maps padded by zeros),
// norm, linear 4 * width -> 2 * width.
class PatchMerging : public ModuleWithConstants {
 public:
  PatchMerging(std::int64_t width, std::int64_t side, double eps, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x);

 private:
  void place_constants(const at::TensorOptions& weights) override;

  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> reduction_;
  TokenMap neighbours_;
};

// What the two networks share: patches as tokens, stages with patch merging between them, at the
// end norm, mean over tokens, linear head.
class SwinBase : public ImageModel {
 public:
  std::int64_t tokens() const override { return config_.side(0) * config_.side(0); }
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

  const SwinConfig& config() const { return config_; }

 protected:
  SwinBase(const SwinConfig& config, WeightMaker& make);
  // For constructors: each stage's module, to register its blocks in and, but for the last one, its
  // merging; then the head.
  torch::nn::Module& add_stage();
  std::vector<Block> blocks_of(std::size_t stage, WeightMaker& make) const;
  int first_block(std::size_t stage) const;  // its number in the network
  void add_merging(torch::nn::Module& stage, WeightMaker& make);
  void add_head(std::int64_t features, WeightMaker& make);

  bool is_last(std::size_t stage) const { return stage + 1 == config_.stages(); }

 private:
  // The blocks of a stage, up to what is merged or, in the last one, to the features of the head.
  virtual at::Tensor run_stage(std::size_t stage, const at::Tensor& x,
                               const ForwardOptions& options,
                               const std::shared_ptr<Pass>& pass) = 0;

  SwinConfig config_;
  std::shared_ptr<LinearLayer> patch_embed_, head_;
  std::shared_ptr<NormLayer> patch_norm_, norm_;
  std::shared_ptr<torch::nn::Module> stages_;
  std::vector<std::shared_ptr<PatchMerging>> mergings_;
};

// Two streams to one: linear 2 * width -> 2 * width, GELU, linear 2 * width -> width.
class StreamFusion : public torch::nn::Module {
 public:
  StreamFusion(std::int64_t width, WeightMaker& make);
  at::Tensor forward(const at::Tensor& streams);

 private:
  std::shared_ptr<LinearLayer> fc1_, fc2_;
};

// Reversible Swin: each stage a stack whose streams both start as its input. Side by side they are
// fused at its end, and those of the last stage go into the head; with another ending each stage
// gives that, and there are no fusions.
class RevSwin : public SwinBase {
 public:
  // Throws std::invalid_argument also where the image size is no multiple of the patch size.
  RevSwin(const SwinConfig& config, const WeightOptions& weights);

 private:
  RevSwin(const SwinConfig& config, WeightMaker make);
  at::Tensor run_stage(std::size_t stage, const at::Tensor& x, const ForwardOptions& options,
                       const std::shared_ptr<Pass>& pass) override;

  std::vector<std::shared_ptr<StreamFusion>> fusions_;
};

// Ordinary Swin: one residual stream. Images of any size: zeros at the right and at the bottom make
// them multiples of the patch.
class PlainSwin : public SwinBase {
 public:
  PlainSwin(const SwinConfig& config, const WeightOptions& weights);

 private:
  PlainSwin(const SwinConfig& config, WeightMaker make);
  at::Tensor run_stage(std::size_t stage, const at::Tensor& x, const ForwardOptions& options,
                       const std::shared_ptr<Pass>& pass) override;
};

}  // namespace pareprop::models
