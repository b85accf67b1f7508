#include "pareprop/trace/memory_sampler.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "pareprop/device/device_memory.h"
#include "pareprop/memory/meter.h"

namespace pareprop {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPeriod{1};

}  // namespace

std::vector<std::string> memory_tags(c10::Device device) {
  if (!device.is_cpu()) return {"tensors", "reserved besides"};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < memory::kTags; ++i) {
    names.emplace_back(memory::name(static_cast<memory::Tag>(i)));
  }
  return names;
}

MemorySampler::MemorySampler(c10::Device device) : device_(device), thread_([this] { work(); }) {}

MemorySampler::~MemorySampler() { stop(); }

void MemorySampler::work() {
  std::unique_lock lock(mutex_);
  do {
    lock.unlock();
    try {
      sample();
    } catch (const std::bad_alloc&) {
      return;  // what is measured may run on with little memory: the samples end here
    }
    lock.lock();
  } while (!stopping_.wait_for(lock, kPeriod, [this] { return stop_; }));
}

void MemorySampler::sample() {
  MemorySample sample{.time =
                          std::chrono::duration<double>(Clock::now().time_since_epoch()).count()};
  if (device_.is_cpu()) {
    const memory::Usage usage = memory::usage();
    sample.bytes = {usage.live.begin(), usage.live.end()};
    sample.total = usage.total_live;
  } else {
    const DeviceMemory memory = device_memory(device_);
    sample.bytes = {memory.allocated, memory.reserved - memory.allocated};
    sample.total = memory.allocated;
  }
  const std::lock_guard lock(mutex_);
  samples_.push_back(std::move(sample));
}

void MemorySampler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<MemorySample> MemorySampler::finish() {
  stop();
  const std::lock_guard lock(mutex_);
  // Whoever read first need not have come first to the lock.
  std::stable_sort(samples_.begin(), samples_.end(),
                   [](const MemorySample& a, const MemorySample& b) { return a.time < b.time; });
  return std::move(samples_);
}

}  // namespace pareprop
