#pragma once

#include <functional>
#include <string>
#include <vector>

namespace pareprop::distributed {

// `arguments` without "--nproc N" and "--nproc=N": what the processes of a launch are given.
std::vector<std::string> without_nproc(const std::vector<std::string>& arguments);

struct LaunchOptions {
  double grace_seconds = 30.0;  // between SIGTERM and SIGKILL for the others when one fails
  // Called when one fails, with which and how: "rank 1 was ended by signal 9 (Killed)".
  std::function<void(const std::string&)> on_failure = nullptr;
};

// Starts this program `processes` times on this machine, each with `arguments` (the name of the
// program is not among them) and the variables of LaunchVariables, and waits for all.
//
// Where OMP_NUM_THREADS is not set, they share the cores. SIGINT, SIGTERM and SIGHUP are passed on.
// When one fails the others are ended, also those that are stopped (SIGSTOP). They also end when
// this process is killed.
//
// Returns 0, or the exit code of the first that failed; 128 + its number for a signal, as shells
// do. Throws std::invalid_argument for less than 1 process and for many times more than there are
// cores, std::system_error when one cannot be started; the others are ended then.
int launch(int processes, const std::vector<std::string>& arguments,
           const LaunchOptions& options = {});

}  // namespace pareprop::distributed
