#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pareprop::distributed {

// What torchrun, and our launcher, tell each of the processes that train together, in variables of
// the environment.
struct LaunchVariables {
  int rank = 0;                       // RANK
  int local_rank = 0;                 // LOCAL_RANK: among those on this machine
  int world = 1;                      // WORLD_SIZE
  int local_world = 0;                // LOCAL_WORLD_SIZE: on this machine; 0: all are
  std::string address = "127.0.0.1";  // MASTER_ADDR: where rank 0 listens
  std::uint16_t port = 29500;         // MASTER_PORT
  bool agent_store = false;           // TORCHELASTIC_USE_AGENT_STORE: torchrun itself listens there
  int attempt = 0;                    // TORCHELASTIC_RESTART_COUNT
};

// One process where neither RANK nor WORLD_SIZE is set. Throws std::invalid_argument that names the
// variable that is missing or cannot be.
LaunchVariables launch_variables(
    const std::function<std::optional<std::string>(const std::string&)>& variable);
LaunchVariables launch_variables();  // of this process

// Where rank 0 listens if MASTER_ADDR says that all processes are on this machine: the loopback
// address that it is, or that its name leads to, in numbers. None for this machine's own name, even
// if it leads to such an address: Debian's does, and other machines reach this one by it too. Asks
// the system to resolve names, which may take seconds.
std::optional<std::string> loopback_address(const LaunchVariables& variables);

// "NAME=VALUE" of each: the inverse.
std::vector<std::string> as_environment(const LaunchVariables& variables);

}  // namespace pareprop::distributed
