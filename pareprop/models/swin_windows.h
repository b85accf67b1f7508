#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "pareprop/ops/token_map.h"

namespace pareprop::models {

// How the square map of a stage is cut into windows.
struct Window {
  std::int64_t side = 0;   // tokens along a side of the map
  std::int64_t size = 0;   // along a side of a window
  std::int64_t shift = 0;  // by which the map is rolled up and left before it is cut

  // A window larger than the map is cut down to it, and one window for all is not shifted.
  static Window fitting(std::int64_t side, std::int64_t size, bool shifted);

  std::int64_t tokens() const { return size * size; }
  std::int64_t padded() const { return (side + size - 1) / size * size; }
  std::int64_t count() const { return (padded() / size) * (padded() / size); }
};

// Tokens of a map, row by row -> those of its windows, window by window, the map padded at the
// right and at the bottom. Within a window row by row, or column by column.
TokenMap window_map(const Window& window, bool by_columns = false);

// Long (tokens * tokens of a window): the row of the bias table, of (2 * size - 1)^2 rows, for each
// query and key.
at::Tensor relative_index(const Window& window);

// (windows, tokens, tokens): -100 where rolling has brought together tokens that are not
// neighbours, else 0. Undefined without shift.
at::Tensor shift_mask(const Window& window, at::ScalarType dtype);

}  // namespace pareprop::models
