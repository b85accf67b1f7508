#pragma once

#include <cstdint>

namespace pareprop::plan {

// What one of `processes` that share this machine may take when no budget was named: what is free,
// less a margin for what is not tensors.
std::int64_t free_budget(int processes = 1);

}  // namespace pareprop::plan
