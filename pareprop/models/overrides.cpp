#include "pareprop/models/overrides.h"

#include <cmath>
#include <stdexcept>

namespace pareprop::models {

Distillation parse_distillation(std::string_view word) {
  for (const Distillation each : {Distillation::none, Distillation::token, Distillation::heads}) {
    if (name(each) == word) return each;
  }
  throw std::invalid_argument("expected none, token or heads, got '" + std::string(word) + "'");
}

std::string_view name(Distillation distillation) {
  switch (distillation) {
    case Distillation::none:
      return "none";
    case Distillation::token:
      return "token";
    case Distillation::heads:
      return "heads";
  }
  return "";
}

Encoder parse_encoder(std::string_view word) {
  for (const Encoder each : {Encoder::norm_first, Encoder::roberta, Encoder::bert}) {
    if (name(each) == word) return each;
  }
  throw std::invalid_argument("expected norm-first, roberta or bert, got '" + std::string(word) +
                              "'");
}

std::string_view name(Encoder encoder) {
  switch (encoder) {
    case Encoder::norm_first:
      return "norm-first";
    case Encoder::roberta:
      return "roberta";
    case Encoder::bert:
      return "bert";
  }
  return "";
}

void check_limits(const Overrides& change) {
  const auto at_most = [](const char* what, std::int64_t most, std::optional<std::int64_t> got) {
    if (!got || *got <= most) return;
    throw std::invalid_argument(std::string(what) + ": expected at most " + std::to_string(most) +
                                ", got " + std::to_string(*got));
  };
  for (const int depth : change.depths) at_most("depth", kMostBlocks, depth);
  at_most("width", kMostWidth, change.width);
  at_most("image_size", kMostImageSize, change.image_size);
  at_most("seq_len", kMostTokens, change.length);
  at_most("vocabulary", kMostVocabulary, change.vocabulary);
  at_most("classes", kMostClasses, change.classes);
  at_most("channels", kMostChannels, change.channels);
  for (const int heads : change.heads) at_most("heads", kMostWidth, heads);
  at_most("patch", kMostImageSize, change.patch);
  at_most("window", kMostImageSize, change.window);
  at_most("positions", kMostTokens + 2, change.positions);
  if (change.mlp_ratio && !(*change.mlp_ratio > 0.0 && *change.mlp_ratio <= kMostMlpRatio)) {
    throw std::invalid_argument("mlp_ratio: expected more than 0 and at most " +
                                std::to_string(static_cast<int>(kMostMlpRatio)) + ", got " +
                                std::to_string(*change.mlp_ratio));
  }
  if (change.norm_eps && !(*change.norm_eps >= 0.0 && *change.norm_eps <= 1.0)) {
    throw std::invalid_argument("norm_eps: expected 0 to 1, got " +
                                std::to_string(*change.norm_eps));
  }
}

std::vector<int> changed_depths(const std::string& family, std::vector<int> depths,
                                const Overrides& change) {
  const std::size_t given = change.depths.size();
  if (given > 1 && given != depths.size()) {
    throw std::invalid_argument(family + ": got " + std::to_string(given) +
                                " depths, expected one, or one for each of " +
                                std::to_string(depths.size()) + " stages");
  }
  for (std::size_t i = 0; given > 0 && i < depths.size(); ++i) {
    depths[i] = change.depths[given == 1 ? 0 : i];
  }
  for (const int depth : depths) {
    if (depth < 0) {
      throw std::invalid_argument(family + ": expected a depth of 0 or more, got " +
                                  std::to_string(depth));
    }
  }
  return depths;
}

ImageShape changed_image(const std::string& family, ImageShape image, const Overrides& change) {
  if (change.length || change.vocabulary || change.positions || change.encoder) {
    throw std::invalid_argument(
        family +
        ": sequence length, vocabulary and encoder are for text models, but this is an image "
        "model");
  }
  image.image_size = change.image_size.value_or(image.image_size);
  image.channels = change.channels.value_or(image.channels);
  image.classes = change.classes.value_or(image.classes);
  return image;
}

std::vector<std::int64_t> changed_heads(const std::string& family, std::vector<std::int64_t> heads,
                                        const Overrides& change) {
  const std::size_t given = change.heads.size();
  if (given > 1 && given != heads.size()) {
    throw std::invalid_argument(
        family + ": got " + std::to_string(given) +
        " numbers of heads, expected one, of the first stage, or one for each of " +
        std::to_string(heads.size()) + " stages");
  }
  for (std::size_t i = 0; given > 0 && i < heads.size(); ++i) {
    heads[i] = given == 1 ? std::int64_t{change.heads[0]} << i : change.heads[i];
  }
  return heads;
}

std::int64_t mlp_width(double ratio, std::int64_t width) {
  constexpr double kRounding = 1e-6;  // of the ratio
  if (!(ratio > 0.0 && ratio <= kMostMlpRatio)) return 0;
  return static_cast<std::int64_t>(std::floor(ratio * static_cast<double>(width) + kRounding));
}

void refuse_override(const std::string& family, const std::string& what, bool given) {
  if (given) throw std::invalid_argument(family + ": it has no " + what);
}

Ending changed_ending(const std::string& family, const Overrides& change) {
  if (change.plain && change.ending) {
    throw std::invalid_argument("the ordinary " + family +
                                " has one stream: --ending is for reversible networks");
  }
  return change.ending.value_or(Ending::concat);
}

DropRates changed_drop(DropRates drop, const Overrides& change) {
  drop.dropout = change.dropout.value_or(drop.dropout);
  drop.drop_path = change.drop_path.value_or(drop.drop_path);
  return drop;
}

}  // namespace pareprop::models
