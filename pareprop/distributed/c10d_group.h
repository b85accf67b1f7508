#pragma once

#include <memory>

#include "pareprop/distributed/process_group.h"

namespace pareprop::distributed {

// make_process_group() for several processes.
std::unique_ptr<ProcessGroup> make_c10d_group(const LaunchVariables& variables,
                                              const GroupOptions& options);

}  // namespace pareprop::distributed
