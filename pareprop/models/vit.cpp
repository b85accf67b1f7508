#include "pareprop/models/vit.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <stdexcept>
#include <string>

#include "pareprop/ops/describe.h"

namespace pareprop::models {
namespace {

constexpr double kEps = 1e-6;

}  // namespace

void check(const ViTConfig& c) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("vit: " + text); };
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (c.depth < 0) fail("expected a depth of 0 or more, got " + text(c.depth));
  if (c.image_size <= 0 || c.patch <= 0 || c.image_size % c.patch != 0) {
    fail("image size " + text(c.image_size) + " is not a multiple of the patch size " +
         text(c.patch));
  }
  if (c.width <= 0 || c.heads <= 0 || c.width % c.heads != 0) {
    fail("width " + text(c.width) + " is not a multiple of " + text(c.heads) + " heads");
  }
  if (c.channels <= 0 || c.classes <= 0 || c.mlp_hidden <= 0) {
    fail("channels, classes and MLP width must be positive");
  }
}

double ViTConfig::macs() const {
  const double t = static_cast<double>(tokens()), c = static_cast<double>(width);
  const double block = t * c * (4 * c + 2 * t + 2 * static_cast<double>(mlp_hidden));
  const double embed = t * c * static_cast<double>(channels * patch * patch);
  return embed + depth * block + 2 * c * static_cast<double>(classes);
}

namespace {

// Floats on the tape of a block: of F the norm's output, q, k, v, probabilities and the mixed
// values, of G the norm's output and the hidden layer before and after GELU; mean and deviation of
// both norms.
double block_tape_floats(const ViTConfig& c) {
  const double t = static_cast<double>(c.tokens()), w = static_cast<double>(c.width);
  const double f = t * (5 * w + static_cast<double>(c.heads) * t);
  const double g = t * (w + 2 * static_cast<double>(c.mlp_hidden));
  return f + g + 4 * t;
}

double stream_floats(const ViTConfig& c) {
  return static_cast<double>(c.tokens()) * static_cast<double>(c.width);
}

}  // namespace

double ViTConfig::activation_bytes_stored() const {
  return 4.0 * depth * (block_tape_floats(*this) + 2 * stream_floats(*this));
}

double ViTConfig::activation_bytes_reversible() const {
  return depth > 0 ? 4.0 * (block_tape_floats(*this) + 4 * stream_floats(*this)) : 0.0;
}

RevViT::RevViT(const ViTConfig& config, const WeightOptions& weights) : config_(config) {
  check(config);
  WeightMaker make(weights);
  const auto width = config.width;
  // A convolution whose stride is its kernel is a linear layer on flattened patches.
  patch_embed_ = register_module(
      "patch_embed",
      std::make_shared<LinearLayer>(config.channels * config.patch * config.patch, width, make));
  positions_ = make.normal(*this, "pos_embed", {1, config.tokens(), width});
  std::vector<Block> blocks;
  for (int i = 0; i < config.depth; ++i) {
    DropRates drop = config.drop;
    if (config.depth > 1) drop.drop_path *= static_cast<double>(i) / (config.depth - 1);
    blocks.push_back({std::make_shared<SelfAttention>(width, config.heads, kEps, drop, make),
                      std::make_shared<Mlp>(width, config.mlp_hidden, kEps, drop, make)});
  }
  stack_ = add_stack("blocks", std::move(blocks));
  norm_ = register_module("norm", std::make_shared<NormLayer>(2 * width, kEps, make));
  head_ = register_module("head", std::make_shared<LinearLayer>(2 * width, config.classes, make));
}

at::Tensor RevViT::embed(const at::Tensor& images) {
  const auto batch = images.size(0), side = config_.image_size / config_.patch, p = config_.patch;
  const at::Tensor patches = images.view({batch, config_.channels, side, p, side, p})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({batch, config_.tokens(), -1});
  return patch_embed_->forward(patches).add(positions_);
}

at::Tensor RevViT::forward(const at::Tensor& input, const ForwardOptions& options) {
  if (input.dim() != 4 || input.size(1) != config_.channels ||
      input.size(2) != config_.image_size || input.size(3) != config_.image_size) {
    throw std::invalid_argument("vit: expected images [batch, " + std::to_string(config_.channels) +
                                ", " + std::to_string(config_.image_size) + ", " +
                                std::to_string(config_.image_size) + "], got " + describe(input));
  }
  const at::Tensor x = embed(input.contiguous());
  const CallOptions call{.extras = {}, .pass = pass_for(options)};
  const auto [y1, y2] =
      options.reference ? stack_->reference(x, x, call) : stack_->forward(x, x, call);
  return head_->forward(norm_->forward(at::cat({y1, y2}, -1)).mean(1));
}

at::Tensor RevViT::example_input(std::int64_t batch, std::uint64_t seed) const {
  return at::randn({batch, config_.channels, config_.image_size, config_.image_size},
                   at::detail::createCPUGenerator(seed), positions_.options().requires_grad(false));
}

at::Tensor RevViT::example_target(std::int64_t batch, std::uint64_t seed) const {
  return at::randint(config_.classes, {batch}, at::detail::createCPUGenerator(seed),
                     at::TensorOptions(at::kLong));
}

}  // namespace pareprop::models
