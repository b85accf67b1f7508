#pragma once

#include <atomic>
#include <cstdint>

#include "pareprop/memory/meter.h"

namespace pareprop::memory {

// What a counted meta tensor would take.
struct MetaBlock {
  MetaBlock(std::int64_t size, Tag what) : bytes(size), tag(what) {}
  const std::int64_t bytes;
  std::atomic<Tag> tag;
};

// The deleter of counted meta tensors, and what they are recognised by.
void release_meta(void* context);

}  // namespace pareprop::memory
