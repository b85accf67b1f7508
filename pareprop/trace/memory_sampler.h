#pragma once

#include <c10/core/Device.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pareprop/trace/step_trace.h"

namespace pareprop {

// What MemorySample::bytes has of a device, in its order: the meter's tags (memory/meter.h), or of
// an accelerator what its allocator knows.
std::vector<std::string> memory_tags(c10::Device device);

// Reads the memory of a device each millisecond, in a thread of its own, from its making on; and
// whenever it is asked to. Thread-safe.
class MemorySampler {
 public:
  explicit MemorySampler(c10::Device device);
  ~MemorySampler();
  MemorySampler(const MemorySampler&) = delete;
  MemorySampler& operator=(const MemorySampler&) = delete;

  void sample();

  // Ends the thread; what was read, in the order of time. Once.
  std::vector<MemorySample> finish();

 private:
  void work();
  void stop();

  const c10::Device device_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::vector<MemorySample> samples_;
  std::thread thread_;
};

}  // namespace pareprop
