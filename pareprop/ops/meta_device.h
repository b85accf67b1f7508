#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace pareprop {

// Note [The meta device]
// A tensor on torch's meta device has a shape and no memory. Our ops treat it like a CPU tensor:
// they allocate what they would allocate on the CPU, in the same order, and leave out the
// arithmetic. So a training step on this device predicts the memory of a step on the CPU
// (memory/meta_meter.h); for our own ops the prediction is exact to the byte. Within a
// DevicePathScope it predicts the memory of a step on an accelerator (ops/device_path.h).

// While it lives, tensors that this thread makes without a device are on the meta device, like
// `with torch.device("meta")` in Python. So any module of torch can be made without memory for its
// weights.
class MetaDeviceScope {
 public:
  MetaDeviceScope();

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace pareprop
