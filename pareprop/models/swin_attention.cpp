#include "pareprop/models/swin_attention.h"

#include <ATen/ops/gather.h>

#include "pareprop/memory/meter.h"
#include "pareprop/ops/attention.h"

namespace pareprop::models {
namespace {

std::int64_t table_rows(const Window& window) {
  return (2 * window.size - 1) * (2 * window.size - 1);
}

}  // namespace

WindowAttention::WindowAttention(const BlockShape& shape, const Window& window, DropRates drop,
                                 WeightMaker& make)
    : window_(window),
      heads_(shape.heads),
      drop_(drop),
      norm_(register_module("norm", std::make_shared<NormLayer>(shape.width, shape.eps, make))),
      qkv_(register_module("qkv", std::make_shared<LinearLayer>(shape.width, 3 * shape.width, make,
                                                                shape.qkv_bias))),
      proj_(register_module("proj", std::make_shared<LinearLayer>(shape.width, shape.width, make))),
      table_(
          make.normal(*this, "relative_position_bias_table", {table_rows(window), shape.heads})) {
  memory::TagScope tag(memory::Tag::parameters);
  to_windows_ = window_map(window);
  index_ = relative_index(window);
  mask_ = shift_mask(window, table_.scalar_type());
  place_constants(table_.options().requires_grad(false));
}

void WindowAttention::place_constants(const at::TensorOptions& weights) {
  to_windows_ = to_windows_.to(weights.device());
  index_ = index_.to(weights.device());
  if (mask_.defined()) mask_ = mask_.to(weights);
}

at::Tensor WindowAttention::bias() const {
  // Unlike index_select, torch has gather on the meta device too.
  return at::gather(table_.t(), 1, index_.expand({heads_, index_.size(0)}))
      .view({heads_, window_.tokens(), window_.tokens()});
}

at::Tensor WindowAttention::forward(const at::Tensor& x, const BranchCall& call) {
  const auto batch = x.size(0), width = x.size(2);
  const at::Tensor windows = rearrange_tokens(norm_->forward(x), to_windows_)
                                 .view({batch * window_.count(), window_.tokens(), width});
  const at::Tensor mixed = self_attention(
      qkv_->forward(windows), heads_,
      {.bias = bias(), .mask = mask_, .dropout = is_training() ? drop_.dropout : 0.0});
  // Back on the map before the projection, which then has no padding to work on.
  const at::Tensor map = rearrange_tokens(
      mixed.view({batch, window_.count() * window_.tokens(), width}), to_windows_.reversed());
  return drop_output(*this, drop_, proj_->forward(map, call.output_needed));
}

std::vector<Block> window_blocks(const SwinStageShape& stage, WeightMaker& make) {
  const BlockShape& shape = stage.block;
  std::vector<Block> blocks;
  for (int i = 0; i < stage.depth; ++i) {
    const DropRates drop = drop_of_block(shape.drop, stage.first_block + i, stage.all_blocks);
    const Window window = Window::fitting(stage.side, stage.window, i % 2 == 1);
    blocks.push_back({std::make_shared<WindowAttention>(shape, window, drop, make),
                      std::make_shared<Mlp>(shape.width, shape.mlp_hidden, shape.eps, drop, make)});
  }
  return blocks;
}

}  // namespace pareprop::models
