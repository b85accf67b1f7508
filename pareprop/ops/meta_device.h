#pragma once

#include <ATen/core/Tensor.h>

namespace pareprop {

// Note [The meta device]
// A tensor on torch's meta device has a shape and no memory. Ops treat it as one of the CPU: they
// allocate what they would there, in the same order, and leave out the arithmetic. A training step
// on that device thus tells the memory of one on the CPU (memory/meta_meter.h), to the byte as far
// as our own ops go.
inline bool is_cpu_or_meta(const at::Tensor& t) { return t.is_cpu() || t.is_meta(); }

}  // namespace pareprop
