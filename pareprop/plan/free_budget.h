#pragma once

#include <cstdint>

#include "pareprop/memory/free_memory.h"

namespace pareprop::plan {

// What one of `processes` that share this machine may take when no budget was named: what is free,
// less a margin for what is not tensors.
std::int64_t free_budget(int processes = 1);
// The same, of what a limit leaves to a process.
std::int64_t free_budget(const memory::MemoryLimit& limit);

}  // namespace pareprop::plan
