#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pareprop/distributed/process_group.h"

namespace pareprop::distributed {

// libtorch's Gloo. Throws what it throws when a process does not come.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const LaunchVariables& variables,
                                            std::chrono::milliseconds timeout);

// Throws std::invalid_argument where this program was compiled without libtorch's NCCL, or there is
// no CUDA device.
void expect_nccl();

// libtorch's NCCL, for CUDA. Throws what expect_nccl() throws.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const LaunchVariables& variables,
                                            std::chrono::milliseconds timeout);

}  // namespace pareprop::distributed
