#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pareprop/distributed/launch_variables.h"

namespace pareprop::distributed {

// The store that all processes share, at MASTER_ADDR:MASTER_PORT. Rank 0 serves it, unless torchrun
// does; to this machine only, where the address is a loopback one.
//
// Throws std::runtime_error when rank 0 cannot listen, or when nobody listens or answers within the
// time-out.
c10::intrusive_ptr<c10d::Store> meet_at_store(const LaunchVariables& variables,
                                              std::chrono::milliseconds timeout);

// What libtorch says, in a sentence, without where in its sources and who called.
std::string what_torch_said(const std::exception& error);

}  // namespace pareprop::distributed
