#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace pareprop {

// Where the tokens of a rearranged sequence come from: no token twice, some places empty.
struct TokenMap {
  at::Tensor source;   // Long (tokens after): the token before that comes here, -1 for none
  at::Tensor inverse;  // Long (tokens before): where it went to, -1 for nowhere
  // Whether `source` and `inverse` have a -1, as a device's values are not looked at.
  bool has_empty = true, has_dropped = true;

  TokenMap reversed() const { return {inverse, source, has_dropped, has_empty}; }
  TokenMap to(at::Device device) const {
    return {source.to(device), inverse.to(device), has_empty, has_dropped};
  }
};

// The map with this source, of a sequence of `tokens`. Throws std::invalid_argument when a token is
// not one of the sequence or comes twice.
TokenMap make_token_map(const std::vector<std::int64_t>& source, std::int64_t tokens);

// x (batch, tokens before, width) -> (batch, tokens after, width), zero in empty places. One copy
// forward, one backward.
at::Tensor rearrange_tokens(const at::Tensor& x, const TokenMap& map);

}  // namespace pareprop
