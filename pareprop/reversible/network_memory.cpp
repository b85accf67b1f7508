#include "pareprop/reversible/network_memory.h"

#include <algorithm>
#include <set>

#include "pareprop/device/device_memory.h"

namespace pareprop {
namespace {

std::int64_t storage_bytes(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  std::int64_t bytes = 0;
  for (const at::Tensor& t : tensors) {
    if (!t.defined() || !seen.insert(t.storage().unsafeGetStorageImpl()).second) continue;
    bytes += static_cast<std::int64_t>(t.storage().nbytes());
  }
  return bytes;
}

}  // namespace

c10::Device device_of(const Network& network) {
  const std::vector<at::Tensor> weights = network.weights();
  return weights.empty() ? c10::Device(at::kCPU) : weights.front().device();
}

memory::Usage usage_on(c10::Device device) {
  if (device.is_cpu()) return memory::usage();
  if (device.is_meta()) return memory::usage(memory::Counted::meta);
  const DeviceMemory counted = device_memory(device);
  return {.total_live = counted.allocated,
          .total_peak = counted.allocated_peak,
          .reserved_peak = counted.reserved_peak};
}

void reset_peaks_on(c10::Device device) {
  if (device.is_cpu()) return memory::reset_peaks();
  if (device.is_meta()) return memory::reset_peaks(memory::Counted::meta);
  reset_device_peaks(device);
}

memory::Usage usage_of(const Network& network, std::int64_t optimizer_bytes) {
  const c10::Device device = device_of(network);
  memory::Usage usage = usage_on(device);
  if (device.is_cpu() || device.is_meta()) return usage;
  std::vector<at::Tensor> gradients;
  const std::vector<at::Tensor> weights = network.weights();
  for (const at::Tensor& weight : weights) gradients.push_back(weight.grad());
  std::int64_t states = 0;
  const auto set = [&](memory::Tag tag, std::int64_t bytes) {
    const auto at = static_cast<std::size_t>(tag);
    usage.live[at] = usage.peak[at] = bytes;
    states += bytes;
  };
  set(memory::Tag::parameters, storage_bytes(weights));
  set(memory::Tag::gradients, storage_bytes(gradients));
  set(memory::Tag::optimizer, optimizer_bytes);
  usage.activation_live = std::max<std::int64_t>(0, usage.total_live - states);
  usage.activation_peak = std::max<std::int64_t>(0, usage.total_peak - states);
  const auto other = static_cast<std::size_t>(memory::Tag::other);
  usage.live[other] = usage.activation_live;
  usage.peak[other] = usage.activation_peak;
  return usage;
}

}  // namespace pareprop
