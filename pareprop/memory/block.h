#pragma once

#include <cstddef>
#include <cstdint>

#include "pareprop/memory/meter.h"

namespace pareprop::memory {

// Stands right before the data of every allocation, small or large, on the same page, and keeps the
// data 64-byte aligned.
struct alignas(64) Block {
  static constexpr int kSmall = -1;

  std::uint64_t mark = 0;   // tells our blocks from other memory while they are in use
  std::size_t asked = 0;    // bytes as asked for
  int size_class = kSmall;  // kSmall: from malloc, not from the pool
  Tag tag = Tag::other;     // shared between threads: atomic access only
  void* start = nullptr;    // of the memory, small blocks only
  Block* newer = nullptr;   // neighbours in the free list of its class
  Block* older = nullptr;
  std::uint64_t freed_at = 0;  // when, in frees of the pool

  void* data() { return this + 1; }
  static Block* of(void* data) { return static_cast<Block*>(data) - 1; }
};
static_assert(sizeof(Block) == 64);

}  // namespace pareprop::memory
