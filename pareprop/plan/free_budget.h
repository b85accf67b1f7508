#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "pareprop/memory/free_memory.h"

namespace pareprop::plan {

// What keeps this process, one of so many on this machine, from having more memory on a device.
// An accelerator is not shared.
memory::MemoryLimit limit_of(c10::Device device, int processes = 1);

// What one of `processes` that share this machine may take when no budget was named: what is free,
// less a margin for what is not tensors.
std::int64_t free_budget(int processes = 1);
// The same of an accelerator, which processes do not share; of the CPU as above.
std::int64_t free_budget(c10::Device device, int processes = 1);
// The same, of what a limit leaves to a process.
std::int64_t free_budget(const memory::MemoryLimit& limit);

}  // namespace pareprop::plan
