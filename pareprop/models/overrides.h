#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/models/ending.h"
#include "pareprop/models/image_model.h"
#include "pareprop/models/layers.h"

namespace pareprop::models {

// What a ViT has of DeiT's distillation: nothing; a token beside the class token; or also a head of
// that token's own, so that the scores are the mean of both heads.
enum class Distillation { none, token, heads };

// "none", "token" or "heads". Throws std::invalid_argument.
Distillation parse_distillation(std::string_view word);
std::string_view name(Distillation distillation);

// Which network for text it is. norm_first (RobertaPreLayerNorm) has norms before attention and
// MLP. roberta and bert have norms behind the sums, so they can only be ordinary networks. BERT's
// positions count from 0 and include padding, and its padding is token 0.
enum class Encoder { norm_first, roberta, bert };

// "norm-first", "roberta" or "bert". Throws std::invalid_argument.
Encoder parse_encoder(std::string_view word);
std::string_view name(Encoder encoder);

// Changes to a named configuration.
struct Overrides {
  // Blocks of each stage; one number holds for all stages. Empty: the model's.
  std::vector<int> depths = {};
  std::optional<std::int64_t> width = std::nullopt;  // the MLP keeps its ratio
  // Of each stage; one number is that of the first stage, and each next one has twice as many.
  std::vector<int> heads = {};
  std::optional<double> mlp_ratio = std::nullopt;    // width of the MLP, as a multiple of the width
  std::optional<std::int64_t> patch = std::nullopt;  // side of a patch in pixels
  std::optional<std::int64_t> window = std::nullopt;  // side of Swin's windows in tokens
  std::optional<std::int64_t> image_size = std::nullopt;
  std::optional<std::int64_t> channels = std::nullopt;
  std::optional<std::int64_t> classes = std::nullopt;     // of images, or of whole texts
  std::optional<std::int64_t> length = std::nullopt;      // tokens in a sequence
  std::optional<std::int64_t> vocabulary = std::nullopt;  // number of token ids
  std::optional<std::int64_t> positions = std::nullopt;   // rows of the table
  std::optional<double> norm_eps = std::nullopt;
  bool no_qkv_bias = false;  // queries, keys and values without bias
  Distillation distillation = Distillation::none;
  std::optional<Encoder> encoder = std::nullopt;  // of text; none: norm_first
  std::optional<double> dropout = std::nullopt;
  std::optional<double> drop_path = std::nullopt;
  bool plain = false;  // the ordinary network instead of the reversible one
  std::optional<Ending> ending = std::nullopt;  // of a reversible network's stacks; none: concat
  bool class_token = false;  // a reversible ViT has the tokens and the head of an ordinary one
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
inline constexpr double kMostMlpRatio = 1024.0;

// Throws std::invalid_argument, naming the limit, for an override that is beyond it.
void check_limits(const Overrides& change);

// What the families share in applying overrides. All throw std::invalid_argument, naming `family`,
// for an override that the family does not have or that does not fit.
std::vector<int> changed_depths(const std::string& family, std::vector<int> depths,
                                const Overrides& change);
ImageShape changed_image(const std::string& family, ImageShape image, const Overrides& change);
DropRates changed_drop(DropRates drop, const Overrides& change);
std::vector<std::int64_t> changed_heads(const std::string& family, std::vector<std::int64_t> heads,
                                        const Overrides& change);
// Width of the MLP behind a layer of `width` channels; 0 for a ratio that no network has. The ratio
// of two widths gives back the first.
std::int64_t mlp_width(double ratio, std::int64_t width);
// Ending::concat, or what `change` says. Throws for an ordinary network, which has one stream.
Ending changed_ending(const std::string& family, const Overrides& change);
// Throws where `given`, for what a family does not have: "vit: it has no windows".
void refuse_override(const std::string& family, const std::string& what, bool given);

}  // namespace pareprop::models
