#include "pareprop/models/registry.h"

#include <algorithm>
#include <map>
#include <stdexcept>

namespace pareprop::models {
namespace {

struct Entry {
  const char* name;
  ViTConfig config;
};

ViTConfig vit(std::int64_t patch, std::int64_t width, int depth, std::int64_t heads,
              std::int64_t mlp_hidden) {
  return {.patch = patch, .width = width, .depth = depth, .heads = heads, .mlp_hidden = mlp_hidden};
}

const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = [] {
    ViTConfig cifar = vit(4, 128, 6, 8, 512);
    cifar.image_size = 32;
    cifar.classes = 10;
    ViTConfig digits = vit(2, 64, 8, 4, 256);
    digits.image_size = 8;
    digits.channels = 1;
    digits.classes = 10;
    return std::vector<Entry>{{"vit_tiny", vit(16, 192, 12, 3, 768)},
                              {"vit_small", vit(16, 384, 12, 6, 1536)},
                              {"vit_base", vit(16, 768, 12, 12, 3072)},
                              {"vit_large", vit(16, 1024, 24, 16, 4096)},
                              {"vit_huge", vit(14, 1280, 32, 16, 5120)},
                              {"vit_giant", vit(14, 1408, 40, 16, 6144)},
                              {"vit_gigantic", vit(14, 1664, 48, 16, 8192)},
                              {"vit_cifar", cifar},
                              {"vit_digits", digits}};
  }();
  return list;
}

std::map<std::string, ModelFactory>& registered() {
  static std::map<std::string, ModelFactory> factories;
  return factories;
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  return names;
}

ViTConfig find_config(const std::string& name, const Overrides& overrides) {
  std::string known;
  for (const Entry& entry : entries()) {
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
    if (name != entry.name) continue;
    ViTConfig config = entry.config;
    if (overrides.width) {
      config.mlp_hidden = config.mlp_hidden * *overrides.width / config.width;
      config.width = *overrides.width;
    }
    config.depth = overrides.depth.value_or(config.depth);
    config.image_size = overrides.image_size.value_or(config.image_size);
    config.channels = overrides.channels.value_or(config.channels);
    config.classes = overrides.classes.value_or(config.classes);
    config.drop.dropout = overrides.dropout.value_or(config.drop.dropout);
    config.drop.drop_path = overrides.drop_path.value_or(config.drop.drop_path);
    check(config);
    return config;
  }
  throw std::invalid_argument("unknown model '" + name + "': expected one of " + known);
}

std::shared_ptr<Model> make_model(const std::string& name, const Overrides& overrides,
                                  const WeightOptions& weights) {
  const auto own = registered().find(name);
  if (own != registered().end()) return own->second(overrides, weights);
  return std::make_shared<RevViT>(find_config(name, overrides), weights);
}

void register_model(const std::string& name, ModelFactory factory) {
  const auto names = model_names();
  if (std::find(names.begin(), names.end(), name) != names.end() || registered().contains(name)) {
    throw std::invalid_argument("model '" + name + "' exists already: choose another name");
  }
  registered()[name] = std::move(factory);
}

ModelSummary summarise(const std::string& name, const Overrides& overrides) {
  const ViTConfig config = find_config(name, overrides);
  const RevViT model(config, {.device = at::kMeta});
  return {.name = name,
          .parameters = model.parameter_count(),
          .gmacs = config.macs() / 1e9,
          .tokens = config.tokens(),
          .stacks = {config.depth},
          .activation_bytes_stored = config.activation_bytes_stored(),
          .activation_bytes_reversible = config.activation_bytes_reversible()};
}

}  // namespace pareprop::models
