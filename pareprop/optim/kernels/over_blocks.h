#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>

#include "pareprop/optim/kernels/eight_bits.h"
#include "pareprop/optim/state_kind.h"

namespace pareprop::optim {

// Calls visit(weight, state) with values of the types that these tensors hold. REQUIRES: weights
// are Float or BFloat16.
template <typename Visit>
void visit_types(const at::Tensor& weights, StateKind state, const Visit& visit) {
  const auto with_state = [&](auto weight) {
    switch (state) {
      case StateKind::fp32:
        return visit(weight, float{});
      case StateKind::bf16:
        return visit(weight, c10::BFloat16{});
      case StateKind::eight_bit:
        return visit(weight, std::uint8_t{});
    }
  };
  if (weights.scalar_type() == at::kBFloat16) return with_state(c10::BFloat16{});
  with_state(float{});
}

// Calls body(first, count) for parts of `values`, on all threads. A part begins with a block.
template <typename Body>
void over_blocks(std::int64_t values, const Body& body) {
  constexpr std::int64_t kGrain = 64;  // blocks that are worth a thread
  at::parallel_for(0, blocks_of(values), kGrain, [&](std::int64_t begin, std::int64_t end) {
    body(begin * kBlock, std::min(end * kBlock, values) - begin * kBlock);
  });
}

}  // namespace pareprop::optim
