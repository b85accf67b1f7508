#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// Names of the meter's tags, in the order of MemorySample::bytes.
std::vector<std::string> memory_tags();

// Reads the meter (memory/meter.h) each millisecond, in a thread of its own, from its making on;
// and whenever it is asked to. Thread-safe.
class MemorySampler {
 public:
  MemorySampler();
  ~MemorySampler();
  MemorySampler(const MemorySampler&) = delete;
  MemorySampler& operator=(const MemorySampler&) = delete;

  void sample();

  // Ends the thread; what was read, in the order of time. Once.
  std::vector<MemorySample> finish();

 private:
  void work();
  void stop();

  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::vector<MemorySample> samples_;
  std::thread thread_;
};

}  // namespace pareprop
