#include <ATen/Context.h>

#include <stdexcept>

#include "pareprop/distributed/c10d_backend.h"
#ifdef PAREPROP_HAS_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

namespace pareprop::distributed {

#ifdef PAREPROP_HAS_NCCL

void expect_nccl() {
  if (!at::hasCUDA()) {
    throw std::invalid_argument(
        "several processes on CUDA need a CUDA device, and this machine shows none: use the CPU");
  }
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store,
                                            const LaunchVariables& variables,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, variables.rank, variables.world,
                                                     std::move(options));
}

#else

void expect_nccl() {
  throw std::invalid_argument(
      "several processes on CUDA need NCCL, which this program was compiled without: use the CPU, "
      "or "
      "one process");
}

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                            const LaunchVariables& /*variables*/,
                                            std::chrono::milliseconds /*timeout*/) {
  expect_nccl();
  return {};
}

#endif

}  // namespace pareprop::distributed
