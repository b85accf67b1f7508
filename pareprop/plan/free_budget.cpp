#include "pareprop/plan/free_budget.h"

#include <algorithm>

#include "pareprop/device/device_memory.h"
#include "pareprop/memory/caching_allocator.h"

namespace pareprop::plan {

memory::MemoryLimit limit_of(c10::Device device, int processes) {
  if (device.is_cpu()) return memory::tightest(memory::memory_limits(), processes);
  return {
      .name = "the memory of " + device.str(), .free = free_device_memory(device), .shared = false};
}

std::int64_t free_budget(const memory::MemoryLimit& limit) {
  constexpr std::int64_t kLeastMargin = std::int64_t{256} << 20;  // threads, libraries, files
  const std::int64_t margin = std::max(limit.free / 10, kLeastMargin);
  return std::max<std::int64_t>(0, limit.free - margin) + memory::pool_usage().unused;
}

std::int64_t free_budget(c10::Device device, int processes) {
  if (device.is_cpu()) return free_budget(processes);
  // Kernels that are loaded, workspaces of libraries and what the allocator cannot use of its
  // blocks.
  const std::int64_t free = free_device_memory(device);
  return free - free / 10;
}

std::int64_t free_budget(int processes) {
  return free_budget(memory::tightest(memory::memory_limits(), processes));
}

}  // namespace pareprop::plan
