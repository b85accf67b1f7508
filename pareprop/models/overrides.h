#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/models/image_model.h"
#include "pareprop/models/layers.h"

namespace pareprop::models {

// Changes to a named configuration.
struct Overrides {
  // Blocks of each stage; one number holds for all stages. Empty: the model's.
  std::vector<int> depths = {};
  std::optional<std::int64_t> width = std::nullopt;  // the MLP keeps its ratio
  std::optional<std::int64_t> image_size = std::nullopt;
  std::optional<std::int64_t> channels = std::nullopt;
  std::optional<std::int64_t> classes = std::nullopt;
  std::optional<std::int64_t> length = std::nullopt;      // tokens in a sequence
  std::optional<std::int64_t> vocabulary = std::nullopt;  // number of token ids
  std::optional<double> dropout = std::nullopt;
  std::optional<double> drop_path = std::nullopt;
  bool plain = false;  // the ordinary network instead of the reversible one
};

// The largest values that make_model() takes, far beyond what can be trained. Larger values are
// mistakes, which would otherwise take hours or much memory to show.
inline constexpr int kMostBlocks = 1000;  // of a stage
inline constexpr std::int64_t kMostWidth = 131'072;
inline constexpr std::int64_t kMostImageSize = 16'384;
inline constexpr std::int64_t kMostTokens = 1'048'576;  // of a sequence
inline constexpr std::int64_t kMostVocabulary = 16'777'216;
inline constexpr std::int64_t kMostClasses = 16'777'216;
inline constexpr std::int64_t kMostChannels = 65'536;

// Throws std::invalid_argument, naming the limit, for an override that is beyond it.
void check_limits(const Overrides& change);

// What the families share in applying overrides. All throw std::invalid_argument, naming `family`,
// for an override that the family does not have or that does not fit.
std::vector<int> changed_depths(const std::string& family, std::vector<int> depths,
                                const Overrides& change);
ImageShape changed_image(const std::string& family, ImageShape image, const Overrides& change);
DropRates changed_drop(DropRates drop, const Overrides& change);

}  // namespace pareprop::models
