#pragma once

#include <cstdint>

#include "pareprop/data/batch.h"

namespace pareprop::data {

// Numbered batches of one process, on the CPU, images in float32. make() is safe from several
// threads, and its result a function of the number alone: who calls it, and when, does not matter.
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
