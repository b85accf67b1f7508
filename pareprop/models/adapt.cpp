#include "pareprop/models/adapt.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/upsample_linear1d.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "pareprop/models/image_model.h"
#include "pareprop/models/roberta.h"
#include "pareprop/models/vit.h"

namespace pareprop::models {
namespace {

using Shape = std::vector<std::int64_t>;

// The side of a square of so many; 0: it is none.
std::int64_t square_root(std::int64_t count) {
  const auto root = std::llround(std::sqrt(static_cast<double>(count)));
  return root > 0 && root * root == count ? root : 0;
}

std::string sides(std::int64_t side) { return std::to_string(side) + " x " + std::to_string(side); }

// Resampling has no kernel for small types, and positions are few.
at::Tensor in_float(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// (1, width, n, n) -> (1, width, side, side).
at::Tensor bicubic(const at::Tensor& maps, std::int64_t side) {
  const std::array<std::int64_t, 2> sizes{side, side};
  return at::upsample_bicubic2d(in_float(maps), sizes, /*align_corners=*/false);
}

bool differs_first_only(const Shape& theirs, const Shape& ours) {
  return theirs.size() == ours.size() && !ours.empty() &&
         std::equal(ours.begin() + 1, ours.end(), theirs.begin() + 1);
}

std::optional<Adaptation> of_positions(const Shape& theirs, const Shape& ours,
                                       std::int64_t prefix) {
  if (theirs.size() != 3 || theirs[0] != 1 || theirs[2] != ours[2]) return std::nullopt;
  const std::int64_t before = square_root(theirs[1] - prefix);
  const std::int64_t after = square_root(ours[1] - prefix);
  if (before == 0 || after == 0) return std::nullopt;
  return Adaptation{
      "positions of " + sides(before) + " patches resampled to " + sides(after),
      [prefix, after](const at::Tensor& x) { return resampled_positions(x, prefix, after); }};
}

std::optional<Adaptation> of_table(const Shape& theirs, const Shape& ours) {
  if (theirs.size() != 2 || theirs[1] != ours[1]) return std::nullopt;
  const std::int64_t before = square_root(theirs[0]), after = square_root(ours[0]);
  if (before % 2 == 0 || after % 2 == 0) return std::nullopt;
  return Adaptation{"tables of relative positions for windows of " + sides((before + 1) / 2) +
                        " resampled to " + sides((after + 1) / 2),
                    [after](const at::Tensor& x) { return resampled_table(x, after); }};
}

std::optional<Adaptation> of_distances(const Shape& theirs, const Shape& ours) {
  if (!differs_first_only(theirs, ours) || theirs[0] < 1) return std::nullopt;
  return Adaptation{"tables of relative positions of " + std::to_string(theirs[0]) +
                        " rows resampled to " + std::to_string(ours[0]),
                    [rows = ours[0]](const at::Tensor& x) { return resampled_rows(x, rows); }};
}

// The rows before the first are for padding.
std::optional<Adaptation> of_text_positions(const Shape& theirs, const Shape& ours,
                                            std::int64_t first) {
  if (!differs_first_only(theirs, ours) || theirs[0] <= first || ours[0] <= first) {
    return std::nullopt;
  }
  return Adaptation{"positions of " + std::to_string(theirs[0] - first) + " tokens resampled to " +
                        std::to_string(ours[0] - first),
                    [rows = ours[0], first](const at::Tensor& x) {
                      return at::cat(
                          {in_float(x.narrow(0, 0, first)),
                           resampled_rows(x.narrow(0, first, x.size(0) - first), rows - first)},
                          0);
                    }};
}

// A grey image gives what it gave as three equal colours, and the other way round.
std::optional<Adaptation> of_patches(const Shape& theirs, const Shape& ours,
                                     std::int64_t channels) {
  // (width, channels, kernel, kernel) or, as a linear layer, (width, channels * kernel * kernel).
  if (theirs.size() != ours.size() || ours.size() < 2 || theirs[0] != ours[0]) return std::nullopt;
  const std::int64_t area = ours.size() == 4 ? ours[2] * ours[3] : ours[1] / channels;
  const bool same_kernel =
      ours.size() == 4 ? theirs[2] == ours[2] && theirs[3] == ours[3] : theirs[1] % area == 0;
  const std::int64_t before = ours.size() == 4 ? theirs[1] : theirs[1] / area;
  const bool known = (before == 1 && channels == 3) || (before == 3 && channels == 1);
  if (!same_kernel || !known) return std::nullopt;
  const std::string what = channels == 1 ? "patch weights of 3 colours summed for grey images"
                                         : "patch weights for grey images divided among 3 colours";
  return Adaptation{what, [=](const at::Tensor& x) {
                      const at::Tensor each = in_float(x).reshape({x.size(0), before, area});
                      const at::Tensor made =
                          channels == 1 ? each.sum(1, true)
                                        : each.expand({-1, channels, -1}).div(double(channels));
                      return made.reshape(ours);
                    }};
}

std::optional<Adaptation> of_token_kinds(const Shape& theirs, const Shape& ours) {
  if (!differs_first_only(theirs, ours) || ours[0] != 1 || theirs[0] < 1) return std::nullopt;
  return Adaptation{"of " + std::to_string(theirs[0]) + " kinds of tokens the first one is used",
                    [](const at::Tensor& x) { return x.narrow(0, 0, 1); }};
}

}  // namespace

at::Tensor resampled_positions(const at::Tensor& positions, std::int64_t prefix,
                               std::int64_t side) {
  const std::int64_t width = positions.size(2), count = positions.size(1) - prefix;
  const std::int64_t before = square_root(count);
  const at::Tensor map =
      positions.narrow(1, prefix, count).reshape({1, before, before, width}).permute({0, 3, 1, 2});
  const at::Tensor made = bicubic(map, side).permute({0, 2, 3, 1}).reshape({1, side * side, width});
  return at::cat({positions.narrow(1, 0, prefix).to(made.scalar_type()), made}, 1);
}

at::Tensor resampled_table(const at::Tensor& table, std::int64_t side) {
  const std::int64_t heads = table.size(1), before = square_root(table.size(0));
  return bicubic(table.t().reshape({1, heads, before, before}), side)
      .reshape({heads, side * side})
      .t();
}

at::Tensor resampled_rows(const at::Tensor& table, std::int64_t rows) {
  const at::Tensor lines = in_float(table).t().unsqueeze(0);
  const std::array<std::int64_t, 1> sizes{rows};
  return at::upsample_linear1d(lines, sizes, /*align_corners=*/false).squeeze(0).t();
}

Adapter::Adapter(const Model& model) {
  if (const auto* image = dynamic_cast<const ImageModel*>(&model)) {
    is_image_ = true;
    channels_ = image->shape().channels;
  }
  if (const auto* vit = dynamic_cast<const ViTBase*>(&model)) prefix_ = vit->prefix();
  if (const auto* text = dynamic_cast<const RobertaBase*>(&model)) {
    first_position_ = text->config().first_position();
  }
}

std::optional<Adaptation> Adapter::adaptation(const std::string& parameter, const Shape& theirs,
                                              const Shape& ours) const {
  const auto ends = [&](const char* end) { return parameter.ends_with(end); };
  if (!is_image_) {
    if (parameter == "embeddings.position") return of_text_positions(theirs, ours, first_position_);
    if (parameter == "embeddings.type") return of_token_kinds(theirs, ours);
    return std::nullopt;
  }
  if (parameter == "pos_embed") return of_positions(theirs, ours, prefix_);
  if (parameter == "patch_embed.weight") return of_patches(theirs, ours, channels_);
  if (ends(".relative_position_bias_table")) return of_table(theirs, ours);
  if (ends(".rel_pos_h") || ends(".rel_pos_w")) return of_distances(theirs, ours);
  return std::nullopt;
}

bool Adapter::is_head(const std::string& parameter) const {
  if (is_image_) return parameter.starts_with("head.") || parameter.starts_with("head_dist.");
  return parameter.starts_with("head_");
}

}  // namespace pareprop::models
