#include "pareprop/plan/free_budget.h"

#include <algorithm>

#include "pareprop/device/device_memory.h"
#include "pareprop/memory/caching_allocator.h"

namespace pareprop::plan {

memory::MemoryLimit limit_of(c10::Device device, int processes) {
  if (device.is_cpu()) return memory::tightest(memory::memory_limits(), processes);
  return memory::tightest(
      {{.name = "the memory of " + device.str(), .free = free_device_memory(device)}}, processes);
}

std::int64_t free_budget(c10::Device device, const memory::MemoryLimit& limit) {
  // Of an accelerator: kernels that are loaded, workspaces of libraries and what the allocator
  // cannot use of its blocks.
  if (!device.is_cpu()) return limit.free - limit.free / 10;
  constexpr std::int64_t kLeastMargin = std::int64_t{256} << 20;  // threads, libraries, files
  const std::int64_t margin = std::max(limit.free / 10, kLeastMargin);
  return std::max<std::int64_t>(0, limit.free - margin) + memory::pool_usage().unused;
}

std::int64_t free_budget(c10::Device device, int processes) {
  return free_budget(device, limit_of(device, processes));
}

}  // namespace pareprop::plan
