#pragma once

#include <c10/core/Device.h>

#include <string>

namespace pareprop::sweep {

// Where results were measured: those of another machine are not to be compared with them.
struct Machine {
  std::string cpu = {};          // as the system calls it
  int threads = 0;               // that it runs at a time
  std::string torch = {};        // version
  std::string accelerator = {};  // accelerator_name() of the device that was measured

  bool operator==(const Machine&) const = default;
};

Machine this_machine(c10::Device device = at::kCPU);

// "AMD EPYC, 2 threads, torch 2.13.0"; of an accelerator "NVIDIA A100, AMD EPYC, ...".
std::string describe(const Machine& machine);

// "2026-11-16T07:00:00Z".
std::string date_now();

}  // namespace pareprop::sweep
