#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pareprop/models/image_model.h"
#include "pareprop/models/layers.h"
#include "pareprop/models/mvit_parts.h"

namespace pareprop::models {

struct MViTStage {
  int depth =
      1;  // blocks, that of the transition into the stage included; the first stage has none
  std::int64_t kv_stride = 1;             // of its blocks
  std::int64_t transition_kv_stride = 1;  // of the transition, on the map of the stage before
};

// How the streams of a stage of the reversible network enter the next one.
enum class MViTJunction {
  fused,   // through a fusion MLP; the shortcut is pooled as queries are (the way of SlowFast)
  concat,  // as they are; the shortcut is the maximum of neighbours (the way of minREV)
};

enum class MViTVersion {
  v1,  // absolute positions; only transitions pool queries
  v2,  // relative positions, all queries pooled, residual pooling
};

struct MViTConfig {
  ImageShape image = {};
  std::int64_t patch_kernel = 7;  // of the embedding, padded by half of it
  std::int64_t patch_stride = 4;
  std::int64_t width = 96;  // of the first stage: both double with every further one
  std::int64_t heads = 1;
  std::int64_t mlp_ratio = 4;
  std::vector<MViTStage> stages = {};
  MViTVersion version = MViTVersion::v2;
  MViTJunction junction = MViTJunction::fused;  // of the reversible network
  // Of the ordinary network: the last block of a stage doubles the width, in its MLP; else the
  // first one of the next stage does, in its attention.
  bool widen_in_mlp = false;
  bool mean_first =
      false;            // of the head: the norm of the tokens' mean, not the mean of their norms
  double eps = 1e-6;    // of the norms
  DropRates drop = {};  // drop_path grows linearly from 0 to this over all blocks

  // Height and width of the map of a stage; transitions halve, and round up.
  std::int64_t map(std::size_t stage) const;
  std::int64_t tokens() const { return map(0) * map(0); }
};

// Four stages of these depths with the strides that MViTv2 has for keys and values: 4, 2, 1, 1.
MViTConfig mvit_config(std::int64_t width, std::int64_t heads, const std::vector<int>& depths);

// Throws std::invalid_argument naming what does not fit.
void check(const MViTConfig& config);

// Reversible MViT. Every stage is a stack; both streams start as copies of the patch embedding, or
// of what the stage's transition made of the streams of the stage before. At the end norm of both
// streams, mean over tokens, linear head. A last stage that is a transition only ends with one
// stream.
//
// Parameters: patch_embed.{weight,bias}, pos_embed (v1), stages.S.fusion.* (fused, S > 0),
// stages.S.transition.* (S > 0), stages.S.blocks.I.f.* (PoolingAttention),
// stages.S.blocks.I.g.{norm, fc1,fc2}.{weight,bias}, norm.{weight,bias}, head.{weight,bias}. S and
// I count from 0; I does not count the transition.
class RevMViT : public ImageModel {
 public:
  RevMViT(const MViTConfig& config, const WeightOptions& weights);
  std::int64_t tokens() const override { return config_.tokens(); }
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

 private:
  struct Stage {
    std::shared_ptr<Fusion> fusion;             // null: none
    std::shared_ptr<ResizingBlock> transition;  // null: none
    Stack stack{nullptr};                       // empty: no blocks but the transition
  };
  // One stream from both of the stage before.
  at::Tensor enter(std::size_t stage, const at::Tensor& both, const Pass& pass,
                   const ForwardOptions& options) const;

  MViTConfig config_;
  std::shared_ptr<PatchConv> patch_embed_;
  at::Tensor positions_;  // undefined: none
  std::vector<Stage> stages_;
  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> head_;
};

// Ordinary MViT: one residual stream. MViTv2 where the version is v2.
//
// Parameters as of the reversible one, but transitions are block 0 of their stage, and blocks that
// widen have a linear layer more: stages.S.blocks.I.shortcut.{weight,bias}.
class PlainMViT : public ImageModel {
 public:
  // Throws std::invalid_argument also where the first stage has no block to widen in.
  PlainMViT(const MViTConfig& config, const WeightOptions& weights);
  std::int64_t tokens() const override { return config_.tokens(); }
  at::Tensor forward(const Batch& batch, const ForwardOptions& options = {}) override;

  const MViTConfig& config() const { return config_; }

 private:
  struct Stage {
    std::shared_ptr<ResizingBlock> first;  // null: no transition
    Stack stack{nullptr};                  // of the blocks between; empty: none
    std::shared_ptr<ResizingBlock> last;   // null: none that widens in its MLP
  };

  MViTConfig config_;
  std::shared_ptr<PatchConv> patch_embed_;
  at::Tensor positions_;  // undefined: none
  std::vector<Stage> stages_;
  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> head_;
};

}  // namespace pareprop::models
