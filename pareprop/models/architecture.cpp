#include "pareprop/models/architecture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>

#include "pareprop/models/mvit.h"
#include "pareprop/models/registry.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/swin.h"
#include "pareprop/models/vit.h"
#include "pareprop/text/fixed.h"

namespace pareprop::models {
namespace {

using Size = std::optional<std::int64_t>;

class ShapeReader {
 public:
  explicit ShapeReader(const Shapes& shapes) : shapes_(shapes) {}

  bool has(const std::string& name) const { return shapes_.contains(name); }
  bool has_any(const std::string& part) const {
    return std::any_of(shapes_.begin(), shapes_.end(), [&](const auto& entry) {
      return entry.first.find(part) != std::string::npos;
    });
  }

  // None: there is no such tensor, or it has fewer dimensions, or this one is not positive.
  Size dimension(const std::string& name, std::size_t which) const {
    const auto found = shapes_.find(name);
    if (found == shapes_.end() || found->second.size() <= which) return std::nullopt;
    const std::int64_t size = found->second[which];
    return size > 0 ? Size(size) : std::nullopt;
  }
  std::size_t dimensions(const std::string& name) const {
    const auto found = shapes_.find(name);
    return found == shapes_.end() ? 0 : found->second.size();
  }

  // How many numbers there are between `before` and `after` in names: 0, 1, 2, ...
  int count(const std::string& before, const std::string& after) const {
    int count = 0;
    while (has(before + std::to_string(count) + after)) ++count;
    return count;
  }

 private:
  const Shapes& shapes_;
};

std::optional<double> ratio(Size a, Size b) {
  if (!a || !b) return std::nullopt;
  return static_cast<double>(*a) / static_cast<double>(*b);
}

Size root(Size count) {
  if (!count) return std::nullopt;
  const auto side = std::llround(std::sqrt(static_cast<double>(*count)));
  return side * side == *count ? Size(side) : std::nullopt;
}

// Patches as a convolution, or of a linear layer.
void tell_patches(const ShapeReader& read, Told& told, bool patch) {
  if (read.dimensions("patch_embed.weight") == 2) {
    told.patch_values = read.dimension("patch_embed.weight", 1);
  }
  if (read.dimensions("patch_embed.weight") != 4) return;
  told.sizes.channels = read.dimension("patch_embed.weight", 1);
  if (patch) told.sizes.patch = read.dimension("patch_embed.weight", 2);
}

void tell_vit(const ShapeReader& read, Told& told) {
  Overrides& sizes = told.sizes;
  sizes.width = read.dimension("pos_embed", 2);
  const bool class_token = read.has("cls_token");
  // Of both streams side by side.
  const bool twice = sizes.width && read.dimension("norm.weight", 0) == 2 * *sizes.width;
  sizes.plain = class_token && !twice;
  sizes.class_token = class_token && twice;
  sizes.depths = {read.count("blocks.", ".f.norm.weight")};
  sizes.mlp_ratio = ratio(read.dimension("blocks.0.g.fc1.weight", 0), sizes.width);
  sizes.no_qkv_bias = !read.has("blocks.0.f.qkv.bias");
  sizes.classes = read.dimension("head.weight", 0);
  if (read.has("dist_token")) {
    sizes.distillation = read.has("head_dist.weight") ? Distillation::heads : Distillation::token;
  }
  tell_patches(read, told, true);
  const std::int64_t prefix = (class_token ? 1 : 0) + (read.has("dist_token") ? 1 : 0);
  const Size positions = read.dimension("pos_embed", 1);
  told.patches = root(positions ? Size(*positions - prefix) : positions);
  if (told.patches && sizes.patch) sizes.image_size = *told.patches * *sizes.patch;
}

void tell_swin(const ShapeReader& read, Told& told) {
  Overrides& sizes = told.sizes;
  sizes.width = read.dimension("patch_norm.weight", 0);
  const int stages = read.count("stages.", ".blocks.0.f.norm.weight");
  std::int64_t rows = 0;  // of the largest table: in small maps windows are cut down
  for (int i = 0; i < stages; ++i) {
    const std::string stage = "stages." + std::to_string(i) + ".blocks.";
    const std::string table = stage + "0.f.relative_position_bias_table";
    sizes.depths.push_back(read.count(stage, ".f.norm.weight"));
    sizes.heads.push_back(static_cast<int>(read.dimension(table, 1).value_or(0)));
    rows = std::max(rows, read.dimension(table, 0).value_or(0));
  }
  if (const Size side = root(rows)) sizes.window = (*side + 1) / 2;
  sizes.mlp_ratio = ratio(read.dimension("stages.0.blocks.0.g.fc1.weight", 0), sizes.width);
  sizes.no_qkv_bias = !read.has("stages.0.blocks.0.f.qkv.bias");
  sizes.classes = read.dimension("head.weight", 0);
  sizes.plain = !read.has_any(".fusion.") &&
                read.dimension("norm.weight", 0) == (sizes.width && stages > 0 && stages < 32
                                                         ? Size(*sizes.width << (stages - 1))
                                                         : std::nullopt);
  tell_patches(read, told, true);
}

void tell_mvit(const ShapeReader& read, Told& told) {
  Overrides& sizes = told.sizes;
  sizes.width = read.dimension("patch_embed.weight", 0);
  const std::string first = "stages.0.blocks.0.";
  const int stages = read.count("stages.", ".blocks.0.f.norm.weight");
  sizes.plain = !read.has_any(".transition.");
  for (int i = 0; i < stages; ++i) {
    const std::string stage = "stages." + std::to_string(i) + ".";
    const int transition = read.has(stage + "transition.f.norm.weight") ? 1 : 0;
    sizes.depths.push_back(read.count(stage + "blocks.", ".f.norm.weight") + transition);
    if (i + 1 < stages) {
      const std::string last = "blocks." + std::to_string(sizes.depths.back() - 1) + ".";
      told.widens_in_mlp = told.widens_in_mlp || read.has(stage + last + "shortcut.weight");
    }
  }
  told.widens_in_mlp = told.widens_in_mlp && !read.has("stages.1.blocks.0.shortcut.weight");
  if (const Size head = read.dimension(first + "f.pool_k.weight", 0); head && sizes.width) {
    sizes.heads = {static_cast<int>(*sizes.width / *head)};
  }
  sizes.mlp_ratio =
      ratio(read.dimension(first + "g.fc1.weight", 0), read.dimension(first + "g.fc1.weight", 1));
  sizes.classes = read.dimension("head.weight", 0);
  tell_patches(read, told, false);
}

void tell_roberta(const ShapeReader& read, Told& told) {
  Overrides& sizes = told.sizes;
  sizes.width = read.dimension("embeddings.word", 1);
  sizes.vocabulary = read.dimension("embeddings.word", 0);
  sizes.positions = read.dimension("embeddings.position", 0);
  sizes.depths = {read.count("blocks.", ".f.norm.weight")};
  sizes.mlp_ratio = ratio(read.dimension("blocks.0.g.fc1.weight", 0), sizes.width);
  sizes.no_qkv_bias = !read.has("blocks.0.f.qkv.bias");
  sizes.classes = read.dimension("head_out.weight", 0);
  const bool norm_first = read.has("norm.weight");
  sizes.encoder = norm_first ? Encoder::norm_first : Encoder::roberta;
  sizes.plain = !norm_first || read.dimension("norm.weight", 0) == sizes.width;
}

std::string text(const std::vector<int>& numbers) {
  std::string all;
  for (const int number : numbers) all += (all.empty() ? "" : ", ") + std::to_string(number);
  return all;
}
std::string text(std::int64_t number) { return std::to_string(number); }
std::string text(double number) { return text::short_number(number, 6); }

// Sizes of a named network.
struct Named {
  std::string name;
  std::int64_t width = 0;
  std::vector<int> depths;
  bool widens_in_mlp = false;
  Size patch = std::nullopt;  // of those with a linear layer of patches
};

std::optional<Named> named(const std::string& name) {
  const auto model = make_model(name, {.plain = true}, {.device = at::kMeta});
  if (const auto* vit = dynamic_cast<const PlainViT*>(model.get())) {
    return Named{name, vit->config().width, {vit->config().depth}, false, vit->config().patch};
  }
  if (const auto* swin = dynamic_cast<const PlainSwin*>(model.get())) {
    return Named{name, swin->config().width, swin->config().depths, false, swin->config().patch};
  }
  if (const auto* mvit = dynamic_cast<const PlainMViT*>(model.get())) {
    Named found{name, mvit->config().width, {}, mvit->config().widen_in_mlp};
    if (mvit->config().version != MViTVersion::v2) return std::nullopt;
    for (const MViTStage& stage : mvit->config().stages) found.depths.push_back(stage.depth);
    return found;
  }
  if (const auto* roberta = dynamic_cast<const PlainRoberta*>(model.get())) {
    return Named{name, roberta->config().width, {roberta->config().depth}};
  }
  return std::nullopt;
}

}  // namespace

Told told_by(const Shapes& shapes) {
  const ShapeReader read(shapes);
  Told told;
  if (read.has("embeddings.word")) {
    told.family = "roberta";
    told.has_head = read.has("head_bias") || read.has("head_out.weight");
    tell_roberta(read, told);
    return told;
  }
  told.has_head = read.has("head.weight");
  if (!read.has("patch_embed.weight")) return told;
  if (read.has("patch_norm.weight")) {
    told.family = "swin";
    tell_swin(read, told);
  } else if (read.has_any(".pool_k.")) {
    told.family = "mvit";
    tell_mvit(read, told);
  } else if (read.has("pos_embed") && read.has("blocks.0.f.qkv.weight")) {
    told.family = "vit";
    tell_vit(read, told);
  }
  return told;
}

Base base_of(const Told& told) {
  for (const std::string& name : model_names()) {
    if (!name.starts_with(told.family + "_")) continue;
    const auto one = named(name);
    if (one && told.sizes.width == one->width && told.sizes.depths == one->depths &&
        one->widens_in_mlp == told.widens_in_mlp) {
      return {name, true};
    }
  }
  if (told.family == "mvit") return {told.widens_in_mlp ? "mvit_large" : "mvit_small"};
  return {told.family + (told.family == "swin" ? "_tiny" : "_base")};
}

std::optional<Overrides> sizes_as(const Told& told, const std::string& model, Size patch) {
  if (told.family.empty() || !model.starts_with(told.family + "_")) return std::nullopt;
  Overrides sizes = told.sizes;
  if (!told.patch_values) return sizes;
  if (!patch) {
    const auto one = named(model);
    patch = one ? one->patch : std::nullopt;
  }
  if (!patch || *patch < 1 || *patch > kMostImageSize) return sizes;
  if (*told.patch_values % (*patch * *patch) == 0) {
    sizes.channels = *told.patch_values / (*patch * *patch);
  }
  if (told.patches) sizes.image_size = *told.patches * *patch;
  return sizes;
}

void check_agreement(const std::string& config, const Overrides& said, const SizeKeys& keys,
                     const std::string& weights, const Overrides& told) {
  const auto fail = [&](const std::string& key, const std::string& a, const std::string& b) {
    throw std::invalid_argument(config + " contradicts the weights: it says " + key + " " + a +
                                ", but " + weights + " has " + b + "; nothing was loaded");
  };
  const auto size = [&](const std::string& key, Size a, Size b) {
    if (a && b && *a != *b) fail(key, text(*a), text(*b));
  };
  const auto list = [&](const std::string& key, const std::vector<int>& a,
                        const std::vector<int>& b) {
    if (!a.empty() && !b.empty() && a != b) fail(key, text(a), text(b));
  };
  size(keys.width, said.width, told.width);
  list(keys.depths, said.depths, told.depths);
  list(keys.heads, said.heads, told.heads);
  if (said.width && said.mlp_ratio && told.mlp_ratio) {
    const auto a = mlp_width(*said.mlp_ratio, *said.width);
    const auto b = mlp_width(*told.mlp_ratio, *said.width);
    if (a != b) fail(keys.mlp_ratio, text(*said.mlp_ratio), text(*told.mlp_ratio));
  }
  size(keys.patch, said.patch, told.patch);
  // Only the number of patches is told.
  const auto patches = [&](Size image) {
    return image && told.patch ? Size(*image / *told.patch) : std::nullopt;
  };
  if (patches(said.image_size) != patches(told.image_size)) {
    size(keys.image_size, said.image_size, told.image_size);
  }
  size(keys.channels, said.channels, told.channels);
  size(keys.classes, said.classes, told.classes);
  size(keys.vocabulary, said.vocabulary, told.vocabulary);
  size(keys.positions, said.positions, told.positions);
  if (said.no_qkv_bias != told.no_qkv_bias) {
    fail(keys.qkv_bias, said.no_qkv_bias ? "false" : "true", told.no_qkv_bias ? "none" : "one");
  }
  if (!said.window || !told.window) return;
  // Where the map is smaller than the window, its table is cut down.
  std::int64_t cut = *said.window;
  if (said.image_size && said.patch && *said.patch > 0) {
    cut = std::min(cut, (*said.image_size + *said.patch - 1) / *said.patch);
  }
  if (*told.window != *said.window && *told.window != cut) {
    fail(keys.window, text(*said.window), text(*told.window));
  }
}

}  // namespace pareprop::models
