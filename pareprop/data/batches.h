#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop::data {

struct Batch {
  // float32 images (batch, channels, height, width), or int64 token ids (batch, length).
  at::Tensor input;
  // int64 classes (batch), or float32 (batch, classes) probabilities when labels are mixed or
  // smoothed; text: int64 (batch, length), -100 where none is scored.
  at::Tensor target;
  // Text only: bool (batch, length), false where padded; undefined: nowhere.
  at::Tensor mask = {};
};

// Numbered batches of one process. make() is safe from several threads, and its result a function
// of the number alone: who calls it, and when, does not matter.
class Batches {
 public:
  virtual ~Batches() = default;
  // Batches of one pass over the data.
  virtual std::int64_t per_epoch() const = 0;
  // Numbers 0, 1, ... without end: epoch = number / per_epoch().
  virtual Batch make(std::int64_t number) const = 0;
};

// This process among those that train together. Batch `number` of all ranks together is the batch
// that one process with `world` times the batch size would make.
struct Shard {
  int rank = 0;
  int world = 1;
};

}  // namespace pareprop::data
