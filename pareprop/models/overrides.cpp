#include "pareprop/models/overrides.h"

#include <stdexcept>

namespace pareprop::models {

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
  if (change.length || change.vocabulary) {
    throw std::invalid_argument(
        family +
        ": sequence length and vocabulary are for text models, but this is an "
        "image model");
  }
  image.image_size = change.image_size.value_or(image.image_size);
  image.channels = change.channels.value_or(image.channels);
  image.classes = change.classes.value_or(image.classes);
  return image;
}

DropRates changed_drop(DropRates drop, const Overrides& change) {
  drop.dropout = change.dropout.value_or(drop.dropout);
  drop.drop_path = change.drop_path.value_or(drop.drop_path);
  return drop;
}

}  // namespace pareprop::models
