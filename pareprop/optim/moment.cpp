#include "pareprop/optim/moment.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pareprop/memory/meter.h"

namespace pareprop::optim {

StateKind kept_kind(const at::Tensor& parameter, StateKind asked) {
  const bool few = parameter.numel() < kFewValues;
  return asked == StateKind::eight_bit && few ? StateKind::fp32 : asked;
}

Moment zero_moment(const at::Tensor& parameter, StateKind kind) {
  const memory::TagScope tag(memory::Tag::optimizer);
  const auto zeros = [&](at::ScalarType type) {
    return at::zeros_like(parameter, parameter.options().dtype(type).requires_grad(false),
                          at::MemoryFormat::Contiguous);
  };
  switch (kind) {
    case StateKind::bf16:
      return {kind, zeros(at::kBFloat16)};
    case StateKind::eight_bit:
      return {kind, zeros(at::kByte),
              at::zeros({blocks_of(parameter.numel())},
                        parameter.options().dtype(at::kFloat).requires_grad(false))};
    case StateKind::fp32:
      break;
  }
  return {kind, zeros(parameter.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)};
}

void add_named(io::NamedTensors& all, const std::string& what, const std::string& parameter,
               const Moment& moment) {
  const std::string kept =
      moment.kind == StateKind::fp32 ? what : what + "_" + std::string(name(moment.kind));
  all.emplace_back(kept + "." + parameter, moment.values);
  if (moment.scales.defined()) all.emplace_back(kept + "_scale." + parameter, moment.scales);
}

}  // namespace pareprop::optim
