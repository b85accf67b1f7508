// The sizes of ViT by name.

#include "pareprop/models/registry.h"
#include "pareprop/models/vit.h"

namespace pareprop::models {
namespace {

ViTConfig size(std::int64_t patch, std::int64_t width, int depth, std::int64_t heads,
               std::int64_t mlp_hidden) {
  return {.patch = patch, .width = width, .depth = depth, .heads = heads, .mlp_hidden = mlp_hidden};
}

ViTConfig with(ViTConfig config, const Overrides& change) {
  if (change.width) {
    config.mlp_hidden = config.mlp_hidden * *change.width / config.width;
    config.width = *change.width;
  }
  if (change.mlp_ratio) config.mlp_hidden = mlp_width(*change.mlp_ratio, config.width);
  config.heads = changed_heads("vit", {config.heads}, change).front();
  config.patch = change.patch.value_or(config.patch);
  config.eps = change.norm_eps.value_or(config.eps);
  config.qkv_bias = !change.no_qkv_bias;
  config.distillation = change.distillation;
  config.class_token = change.class_token;
  config.ending = changed_ending("vit", change);
  refuse_override("vit", "windows", change.window.has_value());
  config.depth = changed_depths("vit", {config.depth}, change).front();
  config.image = changed_image("vit", config.image, change);
  config.drop = changed_drop(config.drop, change);
  return config;
}

NamedModel named(const std::string& name, const ViTConfig& config) {
  return {
      name,
      [config](const Overrides& change, const WeightOptions& weights) -> std::shared_ptr<Model> {
        const ViTConfig changed = with(config, change);
        if (change.plain) return std::make_shared<PlainViT>(changed, weights);
        return std::make_shared<RevViT>(changed, weights);
      }};
}

}  // namespace

std::vector<NamedModel> vit_sizes() {
  ViTConfig cifar = size(4, 128, 6, 8, 512);
  cifar.image = {.image_size = 32, .channels = 3, .classes = 10};
  ViTConfig digits = size(2, 64, 8, 4, 256);
  digits.image = {.image_size = 8, .channels = 1, .classes = 10};
  return {named("vit_tiny", size(16, 192, 12, 3, 768)),
          named("vit_small", size(16, 384, 12, 6, 1536)),
          named("vit_base", size(16, 768, 12, 12, 3072)),
          named("vit_large", size(16, 1024, 24, 16, 4096)),
          named("vit_huge", size(14, 1280, 32, 16, 5120)),
          named("vit_giant", size(14, 1408, 40, 16, 6144)),
          named("vit_gigantic", size(14, 1664, 48, 16, 8192)),
          named("vit_cifar", cifar),
          named("vit_digits", digits)};
}

}  // namespace pareprop::models
