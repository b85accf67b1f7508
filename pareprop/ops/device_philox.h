#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

namespace pareprop {

// For each of `count` numbers from `first` on of draw `draw` of Philox with `key`, whether it is at
// least `threshold`: Bool (count), on `device`. The numbers are those of at::Philox4_32(key, draw).
// On CUDA one kernel computes them, which torch compiles from kernels/philox_source.h when it is
// first needed; elsewhere some 75 integer operators of torch do. The host reads nothing, but for
// the first mask on CUDA, which is drawn in both ways and compared. `first` + `count` is less than
// 2^34.
at::Tensor philox_at_least(std::uint32_t threshold, std::uint64_t key, std::uint64_t draw,
                           std::int64_t first, std::int64_t count, c10::Device device);

}  // namespace pareprop
