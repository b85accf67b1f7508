#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>

#include "pareprop/memory/meter.h"

namespace pareprop::memory {

// Note [The caching allocator]
// torch's CPU allocator maps and faults pages anew for each large tensor. This one keeps freed
// blocks by size class and gives them out again, on huge pages where it can, from one pool for all
// lanes. What is kept is bounded: the pool never holds more than the peak of live bytes plus a
// slack, and trim() gives everything unused back.

// Makes it the allocator of all CPU tensors made from now on. Idempotent, thread-safe, for the rest
// of the process. Tensors that exist already are freed as they were made. The library never calls
// it by itself: programs do.
void install_caching_allocator();
bool caching_allocator_installed();

// Returns all unused memory to the system.
void trim();

struct PoolUsage {
  std::int64_t mapped = 0;  // bytes held from the system for large blocks
  std::int64_t unused = 0;  // of these, in free lists
  std::int64_t hits = 0;    // large blocks given out again
  std::int64_t misses = 0;  // large blocks that had to be mapped
};
PoolUsage pool_usage();

// Moves an allocation to another tag; memory of another allocator is left alone (returns false).
bool retag(const c10::DataPtr& data, Tag tag);

}  // namespace pareprop::memory
