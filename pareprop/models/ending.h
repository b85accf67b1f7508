#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

namespace pareprop::models {

// What the rest of a network reads of a stack of reversible blocks, whose streams begin as x and
// end as y1 and y2.
enum class Ending {
  concat,  // y1 and y2 side by side: twice the width
  sum,     // y1 + y2
  mean,    // (y1 + y2) / 2
  y1,      // without the last G
  y2,
  sum_minus_x,  // y1 + y2 - x: nearly what ordinary blocks with the same weights give
};

// "concat", "sum", "mean", "y1", "y2" or "sum-x". parse_ending() throws std::invalid_argument.
Ending parse_ending(std::string_view word);
std::string_view name(Ending ending);

// Channels of what is read, of streams of this width.
std::int64_t features_of(Ending ending, std::int64_t width);

// REQUIRES: defined tensors of one shape; x may also be one that is broadcast to it.
at::Tensor end_of_streams(Ending ending, const at::Tensor& y1, const at::Tensor& y2,
                          const at::Tensor& x);

}  // namespace pareprop::models
