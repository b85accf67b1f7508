#include "pareprop/plan/free_budget.h"

#include <algorithm>

#include "pareprop/memory/caching_allocator.h"

namespace pareprop::plan {

std::int64_t free_budget(const memory::MemoryLimit& limit) {
  constexpr std::int64_t kLeastMargin = std::int64_t{256} << 20;  // threads, libraries, files
  const std::int64_t margin = std::max(limit.free / 10, kLeastMargin);
  return std::max<std::int64_t>(0, limit.free - margin) + memory::pool_usage().unused;
}

std::int64_t free_budget(int processes) {
  return free_budget(memory::tightest(memory::memory_limits(), processes));
}

}  // namespace pareprop::plan
