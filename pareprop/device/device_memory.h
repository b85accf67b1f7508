#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace pareprop {

// Of one accelerator, as its allocator counts. A block is as large as the allocator made it.
struct DeviceMemory {
  std::int64_t allocated = 0;       // by tensors that are alive
  std::int64_t allocated_peak = 0;  // since reset_device_peaks()
  std::int64_t reserved = 0;        // from the device: allocated, and kept for later
  std::int64_t reserved_peak = 0;
};

// REQUIRES (of all three): an accelerator, not the CPU.
DeviceMemory device_memory(c10::Device device);
void reset_device_peaks(c10::Device device);

// Bytes that this process can still allocate there: what the device has free, and what the
// allocator keeps for later.
std::int64_t free_device_memory(c10::Device device);

}  // namespace pareprop
