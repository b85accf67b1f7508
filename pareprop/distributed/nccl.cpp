#include "pareprop/distributed/c10d_backend.h"

#if defined(USE_C10D_NCCL) && __has_include(<nccl.h>)
#define PAREPROP_HAS_NCCL 1
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#else
#define PAREPROP_HAS_NCCL 0
#include <stdexcept>
#endif

namespace pareprop::distributed {

c10::intrusive_ptr<c10d::Backend> make_nccl(
    [[maybe_unused]] const c10::intrusive_ptr<c10d::Store>& store,
    [[maybe_unused]] const LaunchVariables& variables,
    [[maybe_unused]] std::chrono::milliseconds timeout) {
#if PAREPROP_HAS_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, variables.rank, variables.world,
                                                     std::move(options));
#else
  throw std::invalid_argument(
      "several processes on CUDA need NCCL, which libtorch did not have when this program was "
      "compiled: use the CPU, or one process");
#endif
}

}  // namespace pareprop::distributed
