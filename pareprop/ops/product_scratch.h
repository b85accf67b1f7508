#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace pareprop {

// Note [Scratch of products]
// oneDNN multiplies bf16 by blocks, and torch takes the memory for them from its allocator: up to
// 200 KB a thread, whatever the size of the operands. The meta device has no oneDNN, so while a
// product of a (.., m, k) and b (k, n) or (.., k, n) runs there, this stands for it. How much it
// is, is seen by a real product of that shape, once; of large ones, where it hardly counts, the
// most that it can be. Undefined where there is none.
at::Tensor meta_scratch(const at::Tensor& a, const at::Tensor& b);

}  // namespace pareprop
