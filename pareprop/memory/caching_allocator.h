#pragma once

#include <c10/core/Allocator.h>

#include "pareprop/memory/meter.h"
#include "pareprop/memory/pool_usage.h"

namespace pareprop::memory {

// Note [The caching allocator]
// torch's CPU allocator gets new pages from the system for each large tensor. This allocator keeps
// freed blocks by size class and uses them again, on huge pages if possible, from one pool for all
// lanes. The pool never holds more than the peak of live bytes plus a slack (see block_pool.h), and
// trim() returns everything unused. If the system has no more memory, an allocation throws
// c10::OutOfMemoryError, which is a c10::Error.

// Makes this the allocator of all new CPU tensors, for the rest of the process. Idempotent and
// thread-safe. Older tensors are still freed by the allocator that made them. The library never
// calls it: call it at the start of the program, because torch reads its allocator without a lock.
void install_caching_allocator();
bool caching_allocator_installed();

// Returns all unused memory to the system, and resets the peak of live bytes.
void trim();

PoolUsage pool_usage();

// Gives an allocation another tag. Returns false, and does nothing, for memory of another allocator
// and for a storage that torch shares lazily (copy on write).
bool retag(const c10::DataPtr& data, Tag tag);

}  // namespace pareprop::memory
