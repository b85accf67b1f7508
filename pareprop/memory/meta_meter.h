#pragma once

#include <atomic>
#include <cstdint>

#include "pareprop/memory/meter.h"

namespace pareprop::memory {

// Makes the meter count tensors of the meta device (Counted::meta) as if they had the memory they
// stand for, by the same tags. A training step on that device then tells the peak of a model of any
// size, without its memory. One that no memory could hold throws c10::OutOfMemoryError. Idempotent,
// thread-safe, for the rest of the process; for meta tensors made from then on.
void install_meta_meter();

// What a counted meta tensor would take.
struct MetaBlock {
  MetaBlock(std::int64_t size, Tag what) : bytes(size), tag(what) {}
  const std::int64_t bytes;
  std::atomic<Tag> tag;
};

// The deleter of counted meta tensors, and what they are recognised by.
void release_meta(void* context);

}  // namespace pareprop::memory
