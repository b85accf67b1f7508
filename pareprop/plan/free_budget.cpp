#include "pareprop/plan/free_budget.h"

#include <algorithm>

#include "pareprop/reversible/auto_tuner.h"

namespace pareprop::plan {

std::int64_t free_budget(int processes) {
  constexpr std::int64_t kLeastMargin = std::int64_t{256} << 20;  // threads, libraries, files
  const std::int64_t free = free_memory();
  const std::int64_t margin = std::max(free / 10, kLeastMargin);
  return std::max<std::int64_t>(0, free - margin) / std::max(1, processes);
}

}  // namespace pareprop::plan
