#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "pareprop/memory/free_memory.h"

namespace pareprop::plan {

// What keeps this process, one of so many that share a device, from having more memory there.
memory::MemoryLimit limit_of(c10::Device device, int processes = 1);

// What one of `processes` that share a device may take when no budget was named: what is free, less
// a margin for what is not tensors.
std::int64_t free_budget(c10::Device device = at::kCPU, int processes = 1);
// The same, of what a limit of the device leaves to a process.
std::int64_t free_budget(c10::Device device, const memory::MemoryLimit& limit);

}  // namespace pareprop::plan
