#include "pareprop/device/device_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace pareprop {
namespace {

constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

c10::CachingDeviceAllocator::DeviceStats stats(c10::Device device) {
  return at::getDeviceAllocator(device.type())->getDeviceStats(device.index());
}

}  // namespace

DeviceMemory device_memory(c10::Device device) {
  const auto found = stats(device);
  return {.allocated = found.allocated_bytes[kAll].current,
          .allocated_peak = found.allocated_bytes[kAll].peak,
          .reserved = found.reserved_bytes[kAll].current,
          .reserved_peak = found.reserved_bytes[kAll].peak};
}

void reset_device_peaks(c10::Device device) {
  at::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

std::int64_t free_device_memory(c10::Device device) {
  const auto [free, total] = at::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  const DeviceMemory own = device_memory(device);
  return static_cast<std::int64_t>(free) + own.reserved - own.allocated;
}

}  // namespace pareprop
