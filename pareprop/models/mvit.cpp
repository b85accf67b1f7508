#include "pareprop/models/mvit.h"

#include <ATen/ops/cat.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "pareprop/ops/random_stream.h"

namespace pareprop::models {
namespace {

std::int64_t width_of(const MViTConfig& c, std::size_t stage) { return c.width << stage; }

int all_blocks(const MViTConfig& c) {
  int blocks = 0;
  for (const MViTStage& stage : c.stages) blocks += stage.depth;
  return blocks;
}

// Of a block that keeps map and width; `number` is that of the block in the network.
PoolingShape attention_shape(const MViTConfig& c, std::size_t stage, int number) {
  const bool v2 = c.version == MViTVersion::v2;
  return {.in = width_of(c, stage),
          .width = width_of(c, stage),
          .heads = c.heads << stage,
          .map = c.map(stage),
          .q_stride = 1,
          .kv_stride = c.stages[stage].kv_stride,
          .pool_queries = v2,
          .relative_positions = v2,
          .residual_pooling = v2,
          .eps = c.eps,
          .drop = drop_of_block(c.drop, number, all_blocks(c))};
}

// Of the transition into `stage`.
PoolingShape transition_shape(const MViTConfig& c, std::size_t stage, int number) {
  PoolingShape shape = attention_shape(c, stage, number);
  shape.map = c.map(stage - 1);
  shape.q_stride = 2;
  shape.kv_stride = c.stages[stage].transition_kv_stride;
  shape.pool_queries = true;
  return shape;
}

Block block_of(const PoolingShape& f, std::int64_t mlp_hidden, WeightMaker& make) {
  auto attention = std::make_shared<PoolingAttention>(f, make);
  return {attention, std::make_shared<Mlp>(f.width, mlp_hidden, f.eps, f.drop, make)};
}

bool resizes(const ResizingShape& shape) { return shape.f.q_stride > 1 || shape.f.in != shape.out; }

std::shared_ptr<PatchConv> patch_conv(const MViTConfig& c, WeightMaker& make) {
  return std::make_shared<PatchConv>(c.image.channels, c.width, c.patch_kernel, c.patch_stride,
                                     make);
}

at::Tensor positions_of(torch::nn::Module& model, const MViTConfig& c, WeightMaker& make) {
  if (c.version == MViTVersion::v2) return {};
  return make.normal(model, "pos_embed", {1, c.tokens(), c.width});
}

at::Tensor embed(PatchConv& patch_embed, const at::Tensor& positions, const at::Tensor& images) {
  const at::Tensor tokens = patch_embed.forward(images);
  return positions.defined() ? tokens.add(positions) : tokens;
}

at::Tensor classify(const MViTConfig& c, const at::Tensor& tokens, NormLayer& norm,
                    LinearLayer& head) {
  return head.forward(c.mean_first ? norm.forward(tokens.mean(1)) : norm.forward(tokens).mean(1));
}

std::shared_ptr<torch::nn::Module> add_list(torch::nn::Module& owner, const std::string& name) {
  return owner.register_module(name, std::make_shared<torch::nn::Module>("List"));
}

}  // namespace

std::int64_t MViTConfig::map(std::size_t stage) const {
  const std::int64_t padded = image.image_size + 2 * (patch_kernel / 2);
  std::int64_t side = (padded - patch_kernel) / patch_stride + 1;
  for (std::size_t i = 0; i < stage; ++i) side = (side - 1) / 2 + 1;
  return side;
}

MViTConfig mvit_config(std::int64_t width, std::int64_t heads, const std::vector<int>& depths) {
  MViTConfig config{.width = width, .heads = heads};
  std::int64_t stride = 4;
  for (const int depth : depths) {
    config.stages.push_back({depth, stride, stride});
    stride = stride > 1 ? stride / 2 : 1;
  }
  return config;
}

void check(const MViTConfig& c) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("mvit: " + text); };
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (c.image.image_size <= 0 || c.image.channels <= 0 || c.image.classes <= 0) {
    fail("image size, channels and classes must be positive");
  }
  if (c.patch_kernel <= 0 || c.patch_stride <= 0 || c.mlp_ratio <= 0) {
    fail("kernel and stride of the patches and the MLP ratio must be positive");
  }
  if (c.width <= 0 || c.heads <= 0 || c.width % c.heads != 0) {
    fail("width " + text(c.width) + " is not a multiple of " + text(c.heads) + " heads");
  }
  if (c.stages.empty()) fail("expected one stage or more, got none");
  for (std::size_t i = 0; i < c.stages.size(); ++i) {
    const MViTStage& stage = c.stages[i];
    const int least = i == 0 ? 0 : 1;
    if (stage.depth < least) {
      fail("expected a depth of " + text(least) + " or more in stage " + text(std::int64_t(i) + 1) +
           (i == 0 ? "" : ", because the transition is its first block") + "; got " +
           text(stage.depth));
    }
    if (stage.kv_stride <= 0 || stage.transition_kv_stride <= 0) {
      fail("strides of keys and values must be positive");
    }
  }
}

RevMViT::RevMViT(const MViTConfig& config, const WeightOptions& weights)
    : ImageModel(config.image), config_(config) {
  check(config);
  WeightMaker make(weights);
  patch_embed_ = register_module("patch_embed", patch_conv(config, make));
  positions_ = positions_of(*this, config, make);
  const auto list = add_list(*this, "stages");
  const bool fused = config.junction == MViTJunction::fused;
  int number = 0;
  for (std::size_t i = 0; i < config.stages.size(); ++i) {
    const std::int64_t width = width_of(config, i);
    const auto owner = add_list(*list, std::to_string(i));
    Stage stage;
    int count = config.stages[i].depth;
    if (i > 0) {
      if (fused)
        stage.fusion = owner->register_module("fusion", std::make_shared<Fusion>(width, make));
      const ResizingShape shape{.f = transition_shape(config, i, number),
                                .mlp_hidden = config.mlp_ratio * width,
                                .out = width,
                                .pool = fused ? ShortcutPool::as_queries : ShortcutPool::maximum};
      stage.transition =
          owner->register_module("transition", std::make_shared<ResizingBlock>(shape, make));
      ++number;
      --count;
    }
    std::vector<Block> blocks;
    for (; count > 0; --count, ++number) {
      blocks.push_back(
          block_of(attention_shape(config, i, number), config.mlp_ratio * width, make));
    }
    if (!blocks.empty()) stage.stack = add_stack(*owner, "blocks", std::move(blocks));
    stages_.push_back(std::move(stage));
  }
  const std::int64_t last = width_of(config, config.stages.size() - 1);
  const std::int64_t end = stages_.back().stack.is_empty() ? last : 2 * last;
  norm_ = register_module("norm", std::make_shared<NormLayer>(end, config.eps, make));
  head_ = register_module("head", std::make_shared<LinearLayer>(end, config.image.classes, make));
}

at::Tensor RevMViT::enter(std::size_t stage, const at::Tensor& both, const Pass& pass,
                          const ForwardOptions& options) const {
  const auto& [fusion, transition, stack] = stages_[stage];
  const at::Tensor x = fusion ? run_between(fusion, both, stage, 0, pass, options) : both;
  return run_between(transition, x, stage, 1, pass, options);
}

at::Tensor RevMViT::forward(const Batch& batch, const ForwardOptions& options) {
  const auto pass = pass_for(options);
  const CallOptions call{.extras = {}, .pass = pass};
  at::Tensor x = embed(*patch_embed_, positions_, images(batch));
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (i > 0) x = enter(i, x, *pass, options);
    if (Stack& stack = stages_[i].stack; !stack.is_empty()) {
      const auto [y1, y2] =
          options.reference ? stack->reference(x, x, call) : stack->forward(x, x, call);
      x = at::cat({y1, y2}, -1);
    } else if (i + 1 < stages_.size()) {
      x = at::cat({x, x}, -1);
    }
  }
  return classify(config_, x, *norm_, *head_);
}

PlainMViT::PlainMViT(const MViTConfig& config, const WeightOptions& weights)
    : ImageModel(config.image), config_(config) {
  check(config);
  if (config.widen_in_mlp && config.stages.front().depth == 0) {
    throw std::invalid_argument(
        "mvit: expected a depth of 1 or more in stage 1, because this ordinary network widens in "
        "the MLP of a stage's last block; got 0");
  }
  WeightMaker make(weights);
  patch_embed_ = register_module("patch_embed", patch_conv(config, make));
  positions_ = positions_of(*this, config, make);
  const auto list = add_list(*this, "stages");
  int number = 0;
  std::int64_t width = config.width;  // of the stream so far
  for (std::size_t i = 0; i < config.stages.size(); ++i) {
    const int first = number, depth = config.stages[i].depth;
    const bool last_widens = config.widen_in_mlp && i + 1 < config.stages.size();
    const auto row = add_list(*add_list(*list, std::to_string(i)), "blocks");
    Stage stage;
    std::vector<Block> blocks;
    const auto add_ordinary = [&] {
      if (blocks.empty()) return;
      stage.stack = add_plain_row(*row, stage.first ? 1 : 0, std::exchange(blocks, {}));
    };
    for (; number < first + depth; ++number) {
      ResizingShape shape{.f = i > 0 && number == first ? transition_shape(config, i, number)
                                                        : attention_shape(config, i, number)};
      shape.f.in = width;
      shape.mlp_hidden = config.mlp_ratio * shape.f.width;
      shape.out = width_of(config, last_widens && number + 1 == first + depth ? i + 1 : i);
      width = shape.out;
      if (!resizes(shape)) {
        blocks.push_back(block_of(shape.f, shape.mlp_hidden, make));
        continue;
      }
      add_ordinary();
      auto& resizing = number == first ? stage.first : stage.last;
      resizing = row->register_module(std::to_string(number - first),
                                      std::make_shared<ResizingBlock>(shape, make));
    }
    add_ordinary();
    stages_.push_back(std::move(stage));
  }
  const std::int64_t end = width_of(config, config.stages.size() - 1);
  norm_ = register_module("norm", std::make_shared<NormLayer>(end, config.eps, make));
  head_ = register_module("head", std::make_shared<LinearLayer>(end, config.image.classes, make));
}

at::Tensor PlainMViT::forward(const Batch& batch, const ForwardOptions& options) {
  const auto pass = pass_for(options);
  at::Tensor x = embed(*patch_embed_, positions_, images(batch));
  const CallOptions call{.extras = {}, .pass = pass};
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const auto& [first, stack, last] = stages_[i];
    if (first) x = run_between(first, x, i, 0, *pass, options);
    if (!stack.is_empty()) x = run_plain(stack, x, call, options);
    if (last) x = run_between(last, x, i, 1, *pass, options);
  }
  return classify(config_, x, *norm_, *head_);
}

}  // namespace pareprop::models
