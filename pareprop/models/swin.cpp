#include "pareprop/models/swin.h"

#include <ATen/ops/constant_pad_nd.h>

#include <numeric>
#include <stdexcept>
#include <string>

#include "pareprop/memory/meter.h"
#include "pareprop/models/overrides.h"
#include "pareprop/ops/mlp.h"

namespace pareprop::models {

std::int64_t SwinConfig::side(std::size_t stage) const {
  std::int64_t side = (image.image_size + patch - 1) / patch;
  for (std::size_t i = 0; i < stage; ++i) side = (side + 1) / 2;
  return side;
}

void check(const SwinConfig& c) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("swin: " + text); };
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  const std::int64_t size = c.image.image_size;
  if (c.depths.empty() || c.heads.size() != c.depths.size()) {
    fail("expected depth and heads of each stage, got " + std::to_string(c.depths.size()) +
         " depths and " + std::to_string(c.heads.size()) + " numbers of heads");
  }
  if (size <= 0 || c.patch <= 0) fail("image size and patch size must be positive");
  constexpr std::size_t kMostStages = 16;
  if (c.stages() > kMostStages) {
    fail("expected at most " + std::to_string(kMostStages) + " stages, got " +
         std::to_string(c.stages()));
  }
  for (std::size_t stage = 0; stage < c.stages(); ++stage) {
    const std::string where = "stage " + std::to_string(stage) + ": ";
    if (c.depths[stage] < 0) {
      fail(where + "expected a depth of 0 or more, got " + text(c.depths[stage]));
    }
    const auto width = c.width_of(stage), heads = c.heads[stage];
    if (width <= 0 || heads <= 0 || width % heads != 0) {
      fail(where + "width " + text(width) + " is not a multiple of " + text(heads) + " heads");
    }
  }
  if (c.window <= 0) fail("expected a window of 1 or more, got " + text(c.window));
  if (c.image.channels <= 0 || c.image.classes <= 0 || !(c.mlp_ratio > 0)) {
    fail("channels, classes and MLP ratio must be positive");
  }
}

PatchMerging::PatchMerging(std::int64_t width, std::int64_t side, double eps, WeightMaker& make)
    : norm_(register_module("norm", std::make_shared<NormLayer>(4 * width, eps, make))),
      reduction_(register_module(
          "reduction", std::make_shared<LinearLayer>(4 * width, 2 * width, make, false))) {
  memory::TagScope tag(memory::Tag::parameters);
  neighbours_ = window_map({.side = side, .size = 2}, /*by_columns=*/true);
  place_constants(norm_->weight.options());
}

void PatchMerging::place_constants(const at::TensorOptions& weights) {
  neighbours_ = neighbours_.to(weights.device());
}

at::Tensor PatchMerging::forward(const at::Tensor& x) {
  const at::Tensor groups = rearrange_tokens(x, neighbours_)
                                .view({x.size(0), neighbours_.source.size(0) / 4, 4 * x.size(2)});
  return reduction_->forward(norm_->forward(groups));
}

SwinBase::SwinBase(const SwinConfig& config, WeightMaker& make)
    : ImageModel(config.image), config_(config) {
  check(config);
  const auto pixels = config.image.channels * config.patch * config.patch;
  patch_embed_ =
      register_module("patch_embed", std::make_shared<LinearLayer>(pixels, config.width, make));
  patch_norm_ =
      register_module("patch_norm", std::make_shared<NormLayer>(config.width, config.eps, make));
  stages_ = register_module("stages", std::make_shared<torch::nn::Module>("SwinStages"));
}

torch::nn::Module& SwinBase::add_stage() {
  const auto number = stages_->children().size();
  return *stages_->register_module(std::to_string(number),
                                   std::make_shared<torch::nn::Module>("SwinStage"));
}

int SwinBase::first_block(std::size_t stage) const {
  const auto begin = config_.depths.begin();
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(stage), 0);
}

std::vector<Block> SwinBase::blocks_of(std::size_t stage, WeightMaker& make) const {
  const auto width = config_.width_of(stage);
  return window_blocks({.block = {width, config_.heads[stage], mlp_width(config_.mlp_ratio, width),
                                  config_.eps, config_.drop, config_.qkv_bias},
                        .side = config_.side(stage),
                        .window = config_.window,
                        .depth = config_.depths[stage],
                        .first_block = first_block(stage),
                        .all_blocks = first_block(config_.stages())},
                       make);
}

void SwinBase::add_merging(torch::nn::Module& stage, WeightMaker& make) {
  const auto number = mergings_.size();
  mergings_.push_back(stage.register_module(
      "downsample", std::make_shared<PatchMerging>(config_.width_of(number), config_.side(number),
                                                   config_.eps, make)));
}

void SwinBase::add_head(std::int64_t features, WeightMaker& make) {
  norm_ = register_module("norm", std::make_shared<NormLayer>(features, config_.eps, make));
  head_ =
      register_module("head", std::make_shared<LinearLayer>(features, config_.image.classes, make));
}

at::Tensor SwinBase::forward(const Batch& batch, const ForwardOptions& options) {
  const auto pass = pass_for(options);
  const std::int64_t missing = config_.side(0) * config_.patch - config_.image.image_size;
  at::Tensor whole = images(batch);
  if (missing > 0) whole = at::constant_pad_nd(whole, {0, missing, 0, missing});
  at::Tensor x = patch_norm_->forward(run_outside(*patch_embed_, patches(whole, config_.patch)));
  for (std::size_t stage = 0; stage < config_.stages(); ++stage) {
    x = run_stage(stage, x, options, pass);
    if (!is_last(stage)) x = run_between(mergings_[stage], x, stage, 1, *pass, options);
  }
  return head_->forward(norm_->forward(x).mean(1));
}

StreamFusion::StreamFusion(std::int64_t width, WeightMaker& make)
    : fc1_(register_module("fc1", std::make_shared<LinearLayer>(2 * width, 2 * width, make))),
      fc2_(register_module("fc2", std::make_shared<LinearLayer>(2 * width, width, make))) {}

at::Tensor StreamFusion::forward(const at::Tensor& streams) {
  return mlp(streams, fc1_->weight, fc1_->bias, fc2_->weight, fc2_->bias);
}

RevSwin::RevSwin(const SwinConfig& config, const WeightOptions& weights)
    : RevSwin(config, WeightMaker(weights)) {
  const auto [size, patch] = std::pair(config.image.image_size, config.patch);
  if (size % patch == 0) return;
  throw std::invalid_argument("swin: image size " + std::to_string(size) +
                              " is not a multiple of the patch size " + std::to_string(patch));
}

RevSwin::RevSwin(const SwinConfig& config, WeightMaker make) : SwinBase(config, make) {
  for (std::size_t i = 0; i < config.stages(); ++i) {
    torch::nn::Module& stage = add_stage();
    add_stack(stage, "blocks", blocks_of(i, make));
    if (is_last(i)) continue;
    if (config.ending == Ending::concat) {
      fusions_.push_back(stage.register_module(
          "fusion", std::make_shared<StreamFusion>(config.width_of(i), make)));
    }
    add_merging(stage, make);
  }
  add_head(features_of(config.ending, config.width_of(config.stages() - 1)), make);
}

at::Tensor RevSwin::run_stage(std::size_t stage, const at::Tensor& x, const ForwardOptions& options,
                              const std::shared_ptr<Pass>& pass) {
  const auto [y1, y2] = run_streams(stacks()[stage], x, {.extras = {}, .pass = pass}, options);
  const at::Tensor end = end_of_streams(config().ending, y1, y2, x);
  if (is_last(stage) || fusions_.empty()) return end;
  return run_between(fusions_[stage], end, stage, 0, *pass, options);
}

PlainSwin::PlainSwin(const SwinConfig& config, const WeightOptions& weights)
    : PlainSwin(config, WeightMaker(weights)) {}

PlainSwin::PlainSwin(const SwinConfig& config, WeightMaker make) : SwinBase(config, make) {
  for (std::size_t i = 0; i < config.stages(); ++i) {
    torch::nn::Module& stage = add_stage();
    add_stack(stage, "blocks", blocks_of(i, make), Coupling::residual);
    if (!is_last(i)) add_merging(stage, make);
  }
  add_head(config.width_of(config.stages() - 1), make);
}

at::Tensor PlainSwin::run_stage(std::size_t stage, const at::Tensor& x,
                                const ForwardOptions& options, const std::shared_ptr<Pass>& pass) {
  return run_plain(stacks()[stage], x, {.extras = {}, .pass = pass}, options);
}

}  // namespace pareprop::models
