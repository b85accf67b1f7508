#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "pareprop/io/safetensors.h"
#include "pareprop/optim/kernels/step_kernels.h"
#include "pareprop/optim/state_kind.h"

namespace pareprop::optim {

// A moment of one parameter, as it is kept between two steps. Note [Eight bits]
struct Moment {
  StateKind kind = StateKind::fp32;
  at::Tensor values = {};  // in the shape of the parameter: Float or Double, BFloat16, or Byte
  at::Tensor scales = {};  // of eight bits, Float: one a block
};

// Eight bits are not for parameters with fewer values than this: biases and norms are little
// memory, and much depends on them.
constexpr std::int64_t kFewValues = 4096;

// What the state of this parameter is kept in where `asked` is asked for.
StateKind kept_kind(const at::Tensor& parameter, StateKind asked);

// On the device of the parameter, under the meter's tag for optimizers.
Moment zero_moment(const at::Tensor& parameter, StateKind kind);

// Adds "exp_avg.NAME", "exp_avg_bf16.NAME", or "exp_avg_8bit.NAME" and "exp_avg_8bit_scale.NAME".
void add_named(io::NamedTensors& all, const std::string& what, const std::string& parameter,
               const Moment& moment);

// As the kernels take it. REQUIRES: values are of this type.
template <typename State>
MomentData<State> data_of(const Moment& moment) {
  if (!moment.values.defined()) return {};
  return {moment.values.mutable_data_ptr<State>(),
          moment.scales.defined() ? moment.scales.mutable_data_ptr<float>() : nullptr};
}

}  // namespace pareprop::optim
