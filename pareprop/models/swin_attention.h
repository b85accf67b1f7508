#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "pareprop/models/layers.h"
#include "pareprop/models/swin_windows.h"

namespace pareprop::models {

// F of Swin: norm, multi-head attention within the windows of a square map with a learned bias for
// each distance, projection. x is (batch, tokens of the map, width).
class WindowAttention : public ModuleWithConstants {
 public:
  static constexpr bool skips_output = true;
  WindowAttention(const BlockShape& shape, const Window& window, DropRates drop, WeightMaker& make);
  at::Tensor forward(const at::Tensor& x, const BranchCall& call);

 private:
  void place_constants(const at::TensorOptions& weights) override;
  at::Tensor bias() const;  // (heads, tokens, tokens) of a window

  Window window_;
  std::int64_t heads_;
  DropRates drop_;
  std::shared_ptr<NormLayer> norm_;
  std::shared_ptr<LinearLayer> qkv_, proj_;
  at::Tensor table_;
  TokenMap to_windows_;
  at::Tensor index_, mask_;
};

struct SwinStageShape {
  BlockShape block = {};    // drop_path: that of the network's last block
  std::int64_t side = 0;    // of the map
  std::int64_t window = 0;  // its side, at most; every other block is shifted by half of it
  int depth = 0;
  int first_block = 0;  // its number in the network
  int all_blocks = 0;   // of the network
};

// The blocks of one stage, for a stack or for plain ones.
std::vector<Block> window_blocks(const SwinStageShape& stage, WeightMaker& make);

}  // namespace pareprop::models
