#pragma once

#include <cstdint>

namespace pareprop::memory {

struct PoolUsage {
  std::int64_t mapped = 0;  // bytes held from the system for large blocks
  std::int64_t unused = 0;  // of these, in free lists
  std::int64_t hits = 0;    // large blocks given out again
  std::int64_t misses = 0;  // large blocks that had to be mapped
};

}  // namespace pareprop::memory
