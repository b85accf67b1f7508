// The sizes of MViT by name.

#include <stdexcept>

#include "pareprop/models/mvit.h"
#include "pareprop/models/registry.h"

namespace pareprop::models {
namespace {

MViTConfig with(MViTConfig config, const Overrides& change) {
  std::vector<int> depths;
  for (const MViTStage& stage : config.stages) depths.push_back(stage.depth);
  depths = changed_depths("mvit", depths, change);
  for (std::size_t i = 0; i < depths.size(); ++i) config.stages[i].depth = depths[i];
  config.width = change.width.value_or(config.width);
  config.heads = changed_heads("mvit", {config.heads}, change).front();
  if (change.mlp_ratio) {
    config.mlp_ratio = static_cast<std::int64_t>(*change.mlp_ratio);
    if (static_cast<double>(config.mlp_ratio) != *change.mlp_ratio) {
      throw std::invalid_argument("mvit: expected a whole number as the ratio of the MLP, got " +
                                  std::to_string(*change.mlp_ratio));
    }
  }
  config.eps = change.norm_eps.value_or(config.eps);
  const auto refuse = [](const char* what, bool given) { refuse_override("mvit", what, given); };
  refuse("other patches", change.patch.has_value());
  refuse("windows", change.window.has_value());
  refuse("attention without bias", change.no_qkv_bias);
  refuse("distillation token", change.distillation != Distillation::none);
  refuse("class token", change.class_token);
  refuse("other ending than concat, as its stages widen by it",
         change.ending.value_or(Ending::concat) != Ending::concat);
  config.image = changed_image("mvit", config.image, change);
  config.drop = changed_drop(config.drop, change);
  return config;
}

NamedModel named(const std::string& name, const MViTConfig& config) {
  return {
      name,
      [config](const Overrides& change, const WeightOptions& weights) -> std::shared_ptr<Model> {
        const MViTConfig changed = with(config, change);
        if (change.plain) return std::make_shared<PlainMViT>(changed, weights);
        return std::make_shared<RevMViT>(changed, weights);
      }};
}

// minREV's, whose attention is in windows as large as the map: over all of it, as here.
MViTConfig cifar() {
  return {.image = {.image_size = 32, .channels = 3, .classes = 10},
          .patch_kernel = 3,
          .patch_stride = 2,
          .width = 64,
          .heads = 1,
          .stages = {{.depth = 1, .kv_stride = 2},
                     {.depth = 2, .kv_stride = 2, .transition_kv_stride = 1},
                     {.depth = 1, .kv_stride = 1, .transition_kv_stride = 1}},
          .junction = MViTJunction::concat,
          .mean_first = true,
          .eps = 1e-5};
}

}  // namespace

std::vector<NamedModel> mvit_sizes() {
  MViTConfig v1_base = mvit_config(96, 1, {1, 2, 11, 2});
  v1_base.version = MViTVersion::v1;
  v1_base.widen_in_mlp = true;
  MViTConfig large = mvit_config(144, 2, {2, 6, 36, 4});
  large.widen_in_mlp = true;
  return {named("mvit_tiny", mvit_config(96, 1, {1, 2, 5, 2})),
          named("mvit_small", mvit_config(96, 1, {1, 2, 11, 2})),
          named("mvit_base", mvit_config(96, 1, {2, 3, 16, 3})),
          named("mvit_large", large),
          named("mvit_huge", mvit_config(192, 3, {4, 8, 60, 8})),
          named("mvit_v1_base", v1_base),
          named("mvit_cifar", cifar())};
}

}  // namespace pareprop::models
