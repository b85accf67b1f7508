#pragma once

#include <c10/core/Allocator.h>

#include "pareprop/memory/meter.h"
#include "pareprop/memory/pool_usage.h"

namespace pareprop::memory {

// Note [The caching allocator]
// torch's CPU allocator maps and faults pages anew for each large tensor. This one keeps freed
// blocks by size class and gives them out again, on huge pages where it can, from one pool for all
// lanes. What is kept is bounded: the pool never holds more than the peak of live bytes plus a
// slack (block_pool.h says which), and trim() gives everything unused back. When the system has no
// more memory, an allocation throws c10::OutOfMemoryError, which is a c10::Error.

// Makes it the allocator of all CPU tensors made from now on. Idempotent, thread-safe, for the rest
// of the process. Tensors that exist already are freed as they were made. The library never calls
// it by itself: programs do, best at their start, since torch reads its allocator without a lock.
void install_caching_allocator();
bool caching_allocator_installed();

// Returns all unused memory to the system, and forgets the peak of live bytes up to now.
void trim();

PoolUsage pool_usage();

// Moves an allocation to another tag; memory of another allocator is left alone (returns false), as
// is a storage that torch shares lazily (copy on write).
bool retag(const c10::DataPtr& data, Tag tag);

}  // namespace pareprop::memory
