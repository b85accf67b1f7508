#include "pareprop/ops/token_map.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "pareprop/ops/describe.h"
#include "pareprop/ops/device_path.h"

namespace pareprop {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor long_tensor(const std::vector<std::int64_t>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  Tensor result = at::empty({count}, at::TensorOptions(at::kLong));
  std::copy(values.begin(), values.end(), result.mutable_data_ptr<std::int64_t>());
  return result;
}

void copy_rows(const Tensor& from, const Tensor& source, const Tensor& to) {
  const auto bytes = static_cast<std::size_t>(from.size(2)) * from.element_size();
  const auto before = from.size(1), after = to.size(1);
  const auto* places = source.const_data_ptr<std::int64_t>();
  const auto* in = static_cast<const char*>(from.const_data_ptr());
  auto* out = static_cast<char*>(to.mutable_data_ptr());
  constexpr std::size_t kBytesWorthAThread = 1 << 16;
  const auto grain =
      static_cast<std::int64_t>(kBytesWorthAThread / std::max<std::size_t>(bytes, 1));
  at::parallel_for(0, to.size(0) * after, grain + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto place = places[row % after];
      char* target = out + static_cast<std::size_t>(row) * bytes;
      if (place < 0) {
        std::memset(target, 0, bytes);
      } else {
        const auto taken = static_cast<std::size_t>(row / after * before + place);
        std::memcpy(target, in + taken * bytes, bytes);
      }
    }
  });
}

Tensor rearranged(const Tensor& x, const Tensor& source, bool has_empty) {
  if (runs_kernels(x) || x.is_meta()) {
    Tensor y = at::empty({x.size(0), source.size(0), x.size(2)}, x.options().requires_grad(false));
    if (x.is_cpu()) copy_rows(x.contiguous(), source, y);
    return y;
  }
  if (!has_empty) return at::index_select(x, 1, source);
  return at::index_select(x, 1, source.clamp_min(0)).masked_fill_(source.lt(0).unsqueeze(-1), 0.0);
}

// A scatter backward would be the general rule; as no token comes twice, the inverse map serves.
struct RearrangeFunction : torch::autograd::Function<RearrangeFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& source,
                        const Tensor& inverse, bool has_empty, bool has_dropped) {
    ctx->saved_data["inverse"] = inverse;
    ctx->saved_data["has_dropped"] = has_dropped;
    return rearranged(x, source, has_empty);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor dx = rearranged(grads[0], ctx->saved_data["inverse"].toTensor(),
                                 ctx->saved_data["has_dropped"].toBool());
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

TokenMap make_token_map(const std::vector<std::int64_t>& source, std::int64_t tokens) {
  std::vector<std::int64_t> inverse(static_cast<std::size_t>(tokens), -1);
  for (std::size_t i = 0; i < source.size(); ++i) {
    const auto token = source[i];
    if (token == -1) continue;
    if (token < 0 || token >= tokens || inverse[static_cast<std::size_t>(token)] >= 0) {
      throw std::invalid_argument("token map: token " + std::to_string(token) +
                                  " comes twice or is not one of " + std::to_string(tokens));
    }
    inverse[static_cast<std::size_t>(token)] = static_cast<std::int64_t>(i);
  }
  const auto has_none = [](const std::vector<std::int64_t>& places) {
    return std::find(places.begin(), places.end(), -1) != places.end();
  };
  return {long_tensor(source), long_tensor(inverse), has_none(source), has_none(inverse)};
}

at::Tensor rearrange_tokens(const at::Tensor& x, const TokenMap& map) {
  if (x.dim() != 3 || x.size(1) != map.inverse.size(0)) {
    throw std::invalid_argument("token map: expected [batch, " +
                                std::to_string(map.inverse.size(0)) + ", width], got " +
                                describe(x));
  }
  return RearrangeFunction::apply(x, map.source, map.inverse, map.has_empty, map.has_dropped);
}

}  // namespace pareprop
