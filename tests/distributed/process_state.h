#pragma once

#include <sys/types.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

namespace pareprop::distributed::testing {

// The letter that the kernel has for what a process does: 'T' when it is stopped; 'X': not there.
inline char process_state(pid_t pid) {
  std::string text;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), text);
  const auto name_end = text.rfind(')');
  return name_end == std::string::npos ? 'X' : text.at(name_end + 2);
}

inline bool wait_until_stopped(pid_t pid) {
  for (int i = 0; i < 6000 && process_state(pid) != 'T'; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return process_state(pid) == 'T';
}

}  // namespace pareprop::distributed::testing
