#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop::data {

// What a network is given at a time.
struct Batch {
  // Images (batch, channels, height, width), or int64 token ids (batch, length).
  at::Tensor input;
  // int64 classes (batch), or (batch, classes) probabilities when labels are mixed or smoothed;
  // text: int64 token ids (batch, length), -100 where none is scored.
  at::Tensor target;
  // Text only: bool (batch, length), false where padded; undefined: nowhere.
  at::Tensor mask = {};
  // Text only: int64, which elements of target are scored (models::scored_tokens() of a target on
  // the CPU). Undefined: the network looks for them, which on an accelerator waits for it.
  at::Tensor scored = {};
};

// `count` of its samples from `first` on, in the memory of the batch. REQUIRES: it has no `scored`.
inline Batch samples_of(const Batch& batch, std::int64_t first, std::int64_t count) {
  const auto rows = [&](const at::Tensor& t) {
    return t.defined() ? t.narrow(0, first, count) : t;
  };
  return {.input = rows(batch.input), .target = rows(batch.target), .mask = rows(batch.mask)};
}

}  // namespace pareprop::data
