#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace pareprop {

// Note [Two ways of an op]
// On the CPU our ops have kernels of their own, which work part by part in a core's cache. On an
// accelerator they are few, large operators of torch: the device path. Which way an op goes is
// decided here and nowhere else. The meta device stands for the CPU, so that a dry step counts the
// CPU's bytes.
//
// Within a DevicePathScope ops take the device path for tensors of the CPU and of the meta device
// too: tests compare both ways on one machine, and a dry step counts an accelerator's bytes. Then
// the meta device stands for CUDA. The scope is the thread's; CPU lanes take over their caller's.
class DevicePathScope {
 public:
  explicit DevicePathScope(bool device_path = true);
  ~DevicePathScope();
  DevicePathScope(const DevicePathScope&) = delete;
  DevicePathScope& operator=(const DevicePathScope&) = delete;

 private:
  bool previous_;
};
bool takes_device_path();

// Whether our kernels, or on the meta device what stands for them, compute there.
bool runs_kernels(c10::Device device);
inline bool runs_kernels(const at::Tensor& t) { return runs_kernels(t.device()); }

// Whether reading a value of this device on the host waits for all work that was issued before. On
// the CPU and the meta device it does not; within a DevicePathScope the CPU counts as one that
// does.
bool reads_wait(c10::Device device);

// How many of `all` rows a loop over parts takes at a time: `some`, which suit a core's cache, or,
// on the device path, a quarter of all where that is more: few launches, and temporaries that are
// still small beside the whole.
std::int64_t rows_at_a_time(const at::Tensor& t, std::int64_t all, std::int64_t some);

}  // namespace pareprop
