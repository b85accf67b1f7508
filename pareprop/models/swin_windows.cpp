#include "pareprop/models/swin_windows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace pareprop::models {

Window Window::fitting(std::int64_t side, std::int64_t size, bool shifted) {
  const bool one = side <= size;
  return {side, one ? side : size, one || !shifted ? 0 : size / 2};
}

TokenMap window_map(const Window& window, bool by_columns) {
  const auto side = window.side, size = window.size, padded = window.padded();
  std::vector<std::int64_t> source;
  source.reserve(static_cast<std::size_t>(padded * padded));
  for (std::int64_t top = 0; top < padded; top += size) {
    for (std::int64_t left = 0; left < padded; left += size) {
      for (std::int64_t i = 0; i < window.tokens(); ++i) {
        const auto down = by_columns ? i % size : i / size;
        const auto right = by_columns ? i / size : i % size;
        const auto row = (top + down + window.shift) % padded;
        const auto column = (left + right + window.shift) % padded;
        source.push_back(row < side && column < side ? row * side + column : -1);
      }
    }
  }
  return make_token_map(source, side * side);
}

at::Tensor relative_index(const Window& window) {
  const auto size = window.size, reach = 2 * size - 1;
  const at::Tensor token = at::arange(window.tokens(), at::TensorOptions(at::kLong));
  // Rows of the table are numbered like the tokens of a window of `reach`, the middle one for a
  // token itself.
  const at::Tensor place =
      token.div(size, "floor").mul_(reach).add_(token.remainder(size)).unsqueeze(1);
  return place.sub(place.t()).add_((size - 1) * (reach + 1)).reshape({-1});
}

at::Tensor shift_mask(const Window& window, at::ScalarType dtype) {
  if (window.shift == 0) return {};
  // Along each side the rolled map has three regions: all windows but the last, what is at home in
  // the last one, and what was rolled into it.
  const auto padded = window.padded();
  at::Tensor along = at::zeros({padded}, at::TensorOptions(at::kLong));
  along.slice(0, padded - window.size).fill_(1);
  along.slice(0, padded - window.shift).fill_(2);
  const at::Tensor region = along.mul(3).unsqueeze(1).add(along).reshape({1, padded * padded, 1});
  const Window rolled{padded, window.size, 0};
  const at::Tensor own =
      rearrange_tokens(region, window_map(rolled)).reshape({window.count(), window.tokens(), 1});
  return own.ne(own.transpose(-1, -2)).to(dtype).mul_(-100.0);
}

}  // namespace pareprop::models
