#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <vector>

#include "pareprop/memory/device_pools.h"
#include "tests/simulated_device/clocks.h"

namespace pareprop::testing {

// A piece of the device's memory: the context of a tensor's DataPtr. It stays with its stream and
// its size for ever; tensors come and go.
struct Block {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t requested = 0;                    // by the tensor that has it; 0: it is free
  int actor = 0;                                // the stream that owns it
  memory::DevicePools::Piece* piece = nullptr;  // that CUDA's allocator would give the tensor
  History history;
  std::vector<int> recorded;  // other streams that the allocator was told of
};

// Null for tensors without bytes, and for memory that the device's allocator did not make.
Block* block_of(const c10::DataPtr& memory);
void record_on_stream(const c10::DataPtr& memory, const c10::Stream& stream);

bool is_pinned(const void* data);
c10::Allocator* pinned_allocator();

}  // namespace pareprop::testing
