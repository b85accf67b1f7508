// The sizes of RoBERTa by name.

#include <algorithm>
#include <stdexcept>

#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"

namespace pareprop::models {
namespace {

RobertaConfig with(RobertaConfig config, const Overrides& change) {
  if (change.image_size || change.channels) {
    throw std::invalid_argument(
        "roberta: image size and channels are for image models, but this is a text model");
  }
  if (change.width) {
    config.mlp_hidden = config.mlp_hidden * *change.width / config.width;
    config.width = *change.width;
  }
  if (change.mlp_ratio) config.mlp_hidden = mlp_width(*change.mlp_ratio, config.width);
  config.heads = changed_heads("roberta", {config.heads}, change).front();
  config.eps = change.norm_eps.value_or(config.eps);
  config.qkv_bias = !change.no_qkv_bias;
  const auto refuse = [](const char* what, bool given) { refuse_override("roberta", what, given); };
  refuse("patches", change.patch.has_value());
  refuse("windows", change.window.has_value());
  refuse("distillation token", change.distillation != Distillation::none);
  config.depth = changed_depths("roberta", {config.depth}, change).front();
  config.positions = change.positions.value_or(config.positions);
  config.encoder = change.encoder.value_or(config.encoder);
  config.classes = change.classes.value_or(0);
  config.length = change.length.value_or(std::min(config.length, config.longest()));
  config.positions = std::max(config.positions, config.length + config.first_position());
  config.vocabulary = change.vocabulary.value_or(config.vocabulary);
  refuse("class token", change.class_token);
  config.ending = changed_ending("roberta", change);
  config.drop = changed_drop(config.drop, change);
  return config;
}

NamedModel named(const std::string& name, int depth, std::int64_t width, std::int64_t heads) {
  const RobertaConfig config{
      .width = width, .depth = depth, .heads = heads, .mlp_hidden = 4 * width};
  return {
      name,
      [config](const Overrides& change, const WeightOptions& weights) -> std::shared_ptr<Model> {
        const RobertaConfig changed = with(config, change);
        if (change.plain) return std::make_shared<PlainRoberta>(changed, weights);
        return std::make_shared<RevRoberta>(changed, weights);
      }};
}

}  // namespace

std::vector<NamedModel> roberta_sizes() {
  return {named("roberta_base", 12, 768, 12), named("roberta_large", 24, 1024, 16),
          named("roberta_xl", 36, 2560, 32), named("roberta_xxl", 48, 4096, 32)};
}

}  // namespace pareprop::models
