#include "pareprop/ops/device_path.h"

#include <algorithm>

namespace pareprop {
namespace {
thread_local bool device_path_now = false;
}

DevicePathScope::DevicePathScope(bool device_path) : previous_(device_path_now) {
  device_path_now = device_path;
}
DevicePathScope::~DevicePathScope() { device_path_now = previous_; }

bool takes_device_path() { return device_path_now; }

bool runs_kernels(c10::Device device) {
  return (device.is_cpu() || device.is_meta()) && !device_path_now;
}

bool reads_wait(c10::Device device) {
  if (device.is_meta()) return false;
  return !device.is_cpu() || device_path_now;
}

std::int64_t rows_at_a_time(const at::Tensor& t, std::int64_t all, std::int64_t some) {
  constexpr std::int64_t kDeviceParts = 4;
  if (runs_kernels(t)) return some;
  return std::max(some, (all + kDeviceParts - 1) / kDeviceParts);
}

}  // namespace pareprop
