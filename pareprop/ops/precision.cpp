#include "pareprop/ops/precision.h"

#include <ATen/autocast_mode.h>

#include <stdexcept>
#include <string>

namespace pareprop {

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::bf16:
      return "bf16";
    case Precision::fp64:
      return "fp64";
  }
  return "?";
}

Precision parse_precision(std::string_view text) {
  for (Precision precision : {Precision::fp32, Precision::bf16, Precision::fp64}) {
    if (text == name(precision)) return precision;
  }
  throw std::invalid_argument("unknown precision '" + std::string(text) +
                              "': expected one of fp32, bf16, fp64");
}

c10::ScalarType stream_dtype(Precision precision) {
  return precision == Precision::fp64 ? c10::ScalarType::Double : c10::ScalarType::Float;
}

namespace {
// Torch has none for the meta device.
thread_local AutocastState meta_state;
}  // namespace

AutocastState AutocastState::of_this_thread(c10::DeviceType device, Precision precision) {
  const bool meta = device == c10::DeviceType::Meta;
  if (!meta && !at::autocast::is_autocast_available(device)) {
    if (precision != Precision::bf16) return {};
    throw std::invalid_argument("torch does not compute in bf16 on device " +
                                c10::DeviceTypeName(device, /*lower_case=*/true) + ": use fp32");
  }
  if (precision == Precision::bf16) return {true, c10::ScalarType::BFloat16};
  if (meta) return meta_state;
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
}

c10::ScalarType compute_dtype(const at::Tensor& x) {
  const auto autocast = AutocastState::of_this_thread(x.device().type(), Precision::fp32);
  return autocast.enabled ? autocast.dtype : x.scalar_type();
}

namespace {

void apply(c10::DeviceType device, const AutocastState& state, bool cache) {
  if (device == c10::DeviceType::Meta) meta_state = state;
  if (!at::autocast::is_autocast_available(device)) return;
  at::autocast::set_autocast_enabled(device, state.enabled);
  at::autocast::set_autocast_dtype(device, state.dtype);
  at::autocast::set_autocast_cache_enabled(cache);
}

}  // namespace

AutocastScope::AutocastScope(c10::DeviceType device, const AutocastState& state)
    : device_(device),
      previous_(AutocastState::of_this_thread(device, Precision::fp32)),
      previous_cache_(at::autocast::is_autocast_cache_enabled()) {
  apply(device, state, /*cache=*/false);
}

AutocastScope::~AutocastScope() { apply(device_, previous_, previous_cache_); }

}  // namespace pareprop
