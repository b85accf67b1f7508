#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace pareprop {

// Note [The meta device]
// A tensor on torch's meta device has a shape and no memory. Ops treat it as one of the CPU: they
// allocate what they would there, in the same order, and leave out the arithmetic. A training step
// on that device thus tells the memory of one on the CPU (memory/meta_meter.h), to the byte as far
// as our own ops go.
inline bool is_cpu_or_meta(const at::Tensor& t) { return t.is_cpu() || t.is_meta(); }

// While it lives, tensors that this thread makes without naming a device are on the meta device:
// what `with torch.device("meta")` is in Python. So any module of torch can be made there, without
// memory for its weights.
class MetaDeviceScope {
 public:
  MetaDeviceScope();

 private:
  c10::impl::IncludeDispatchKeyGuard included_;
};

}  // namespace pareprop
