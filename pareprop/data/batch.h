#pragma once

#include <ATen/core/Tensor.h>

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

}  // namespace pareprop::data
