#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/models/model.h"

namespace pareprop::models {

// How a parameter of another size becomes that of a network.
struct Adaptation {
  std::string what;  // "positions of 14 x 14 patches resampled to 24 x 24"
  std::function<at::Tensor(const at::Tensor& theirs)> make;  // of our shape
};

// Makes parameters of networks that differ in what is adapted: the image size and the length of a
// sequence (positions), Swin's window and MViT's map (relative positions), the number of channels
// (patches), and kinds of tokens.
class Adapter {
 public:
  explicit Adapter(const Model& model);

  // For `parameter`, of shape `theirs` in a file and `ours` in the network. None: what differs
  // cannot be adapted.
  std::optional<Adaptation> adaptation(const std::string& parameter,
                                       const std::vector<std::int64_t>& theirs,
                                       const std::vector<std::int64_t>& ours) const;

  // Whether a parameter belongs to what gives the scores: of other classes, it is made anew.
  bool is_head(const std::string& parameter) const;

 private:
  bool is_image_ = false;
  std::int64_t prefix_ = 0;  // positions that are no patch's
  std::int64_t channels_ = 0;
  std::int64_t first_position_ = 0;  // of a text
};

// (1, prefix + n * n, width) -> (1, prefix + side * side, width): the positions of a map, bicubic
// as torch's interpolate does it; the prefix stays.
at::Tensor resampled_positions(const at::Tensor& positions, std::int64_t prefix, std::int64_t side);

// (n * n, heads) -> (side * side, heads), bicubic: a table of Swin, side = 2 * window - 1.
at::Tensor resampled_table(const at::Tensor& table, std::int64_t side);

// (n, ...) -> (rows, ...), linear: a table of MViT, or positions of a text.
at::Tensor resampled_rows(const at::Tensor& table, std::int64_t rows);

}  // namespace pareprop::models
