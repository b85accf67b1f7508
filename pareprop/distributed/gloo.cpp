// The wheel declares its Gloo only to those that have Gloo's headers, which it lacks; Debian's
// serve. Nothing of Gloo itself is used here beyond pointers to it, so that its version does not
// matter.

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "pareprop/distributed/c10d_backend.h"

namespace pareprop::distributed {

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const LaunchVariables& variables,
                                            std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // Host names often lead to an address that the other processes cannot reach.
  const char* const named = std::getenv("GLOO_SOCKET_IFNAME");  // NOLINT(concurrency-mt-unsafe)
  options->devices.push_back(
      named != nullptr              ? c10d::ProcessGroupGloo::createDeviceForInterface(named)
      : loopback_address(variables) ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                    : c10d::ProcessGroupGloo::createDefaultDevice());
  options->threads = 1;  // operations one after the other: the cores have other work
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, variables.rank, variables.world,
                                                     std::move(options));
}

}  // namespace pareprop::distributed
