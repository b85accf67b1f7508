#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/models/name_rules.h"
#include "pareprop/models/overrides.h"

namespace pareprop::models {

// How images were made inputs of a network: (level - mean) / deviation, of levels 0 .. 1, for each
// colour or one for all.
struct ImageInput {
  std::vector<float> mean, deviation;
  double centre_share = 1.0;  // side of the part of the middle that is seen
};

// What the scores of classes mean: one class is chosen, each class is there or not, or they are
// numbers.
enum class Problem { one_class, several_classes, regression };

// What is known of a network before its weights are read.
struct Architecture {
  std::string model = {};                // a name of model_names(), with
  Overrides sizes = {};                  // all that is known
  std::vector<std::string> labels = {};  // of its classes; empty: they have no names
  Problem problem = Problem::one_class;
  std::optional<ImageInput> input = {};  // none: not known
  std::vector<std::string> notes = {};   // what differs from it here, a line each
};

// What shapes tell of the network that they are of. Sizes that they do not tell are not set.
struct Told {
  std::string family;          // "vit", "swin", "mvit" or "roberta"; empty: none of ours
  Overrides sizes;             // with `plain`
  bool has_head = false;       // one for classes or words
  bool widens_in_mlp = false;  // MViT (MViTConfig::widen_in_mlp)
  // Patches of a linear layer tell only what their side and channels make together.
  std::optional<std::int64_t> patch_values = {};  // channels times side times side
  std::optional<std::int64_t> patches = {};       // along a side of the image (ViT)
};
// REQUIRES: names are ours.
Told told_by(const Shapes& shapes);

// The named network of the family with these depths and this width; the best known one of the
// family where there is none.
struct Base {
  std::string model;
  bool is_exact = false;  // these are its sizes
};
Base base_of(const Told& told);

// What is told, and what follows from it if the network is `model`, with `patch` as the side of its
// patches (none: the model's). None: it is of another family.
std::optional<Overrides> sizes_as(const Told& told, const std::string& model,
                                  std::optional<std::int64_t> patch = std::nullopt);

// What a configuration calls a size.
struct SizeKeys {
  std::string width, depths, heads, mlp_ratio, patch, window, image_size, channels, classes,
      vocabulary, positions, qkv_bias;
};
// Throws std::invalid_argument that names `config` and `weights` (files), for the first size that
// both tell and that differs.
void check_agreement(const std::string& config, const Overrides& said, const SizeKeys& keys,
                     const std::string& weights, const Overrides& told);

}  // namespace pareprop::models
