// The sizes of Swin by name.

#include "pareprop/models/registry.h"
#include "pareprop/models/swin.h"

namespace pareprop::models {
namespace {

// Every stage has twice the heads of the one before.
SwinConfig size(std::int64_t width, const std::vector<int>& depths, std::int64_t first_heads) {
  SwinConfig config{.width = width, .depths = depths, .heads = {}};
  for (std::size_t i = 0; i < depths.size(); ++i) config.heads.push_back(first_heads << i);
  return config;
}

SwinConfig with(SwinConfig config, const Overrides& change) {
  config.width = change.width.value_or(config.width);
  config.mlp_ratio = change.mlp_ratio.value_or(config.mlp_ratio);
  // Both for each stage: they say how many there are.
  if (change.depths.size() > 1 && change.depths.size() == change.heads.size()) {
    config.depths = change.depths;
    config.heads.assign(change.heads.begin(), change.heads.end());
  }
  config.heads = changed_heads("swin", config.heads, change);
  config.patch = change.patch.value_or(config.patch);
  config.window = change.window.value_or(config.window);
  config.eps = change.norm_eps.value_or(config.eps);
  config.qkv_bias = !change.no_qkv_bias;
  refuse_override("swin", "distillation token", change.distillation != Distillation::none);
  refuse_override("swin", "class token", change.class_token);
  config.ending = changed_ending("swin", change);
  config.depths = changed_depths("swin", config.depths, change);
  config.image = changed_image("swin", config.image, change);
  config.drop = changed_drop(config.drop, change);
  return config;
}

NamedModel named(const std::string& name, const SwinConfig& config) {
  return {
      name,
      [config](const Overrides& change, const WeightOptions& weights) -> std::shared_ptr<Model> {
        const SwinConfig changed = with(config, change);
        if (change.plain) return std::make_shared<PlainSwin>(changed, weights);
        return std::make_shared<RevSwin>(changed, weights);
      }};
}

}  // namespace

std::vector<NamedModel> swin_sizes() {
  SwinConfig cifar = size(128, {2, 2}, 4);
  cifar.image = {.image_size = 32, .channels = 3, .classes = 10};
  cifar.window = 4;
  return {named("swin_tiny", size(96, {2, 2, 6, 2}, 3)),
          named("swin_small", size(96, {2, 2, 18, 2}, 3)),
          named("swin_base", size(128, {2, 2, 18, 2}, 4)),
          named("swin_large", size(192, {2, 2, 18, 2}, 6)),
          named("swin_huge", size(352, {2, 2, 18, 2}, 8)),
          named("swin_giant", size(512, {2, 2, 42, 2}, 16)),
          named("swin_cifar", cifar)};
}

}  // namespace pareprop::models
