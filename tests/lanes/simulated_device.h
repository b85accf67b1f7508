#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pareprop::testing {

// Note [The simulated device]
// A device of type PrivateUse1 for machines without an accelerator. Linking this file registers it
// with c10, so that c10::Stream, StreamGuard and Event work on it as on a real one. A stream is a
// thread with a queue; every piece of work comes late by a random time. An event is the completion
// of its last recording: re-recorded, it leaves the waits for the earlier recording alone. There
// are two devices, each with a default stream (id 0) and a pool that is handed out in turn.
class SimulatedDevice {
 public:
  static constexpr int kDevices = 2;
  static constexpr int kPool = 4;

  struct Counts {
    int host_waits = 0;  // synchronize and query, of streams, events and devices
    int records = 0;
    int blocks = 0;
  };

  static c10::Device device(int index = 0);

  // Queues `work` on the calling thread's current stream of its current device.
  static void enqueue(std::function<void()> work);

  // Work of all streams begins late by up to `most` microseconds, drawn from `seed`.
  static void set_delays(std::uint64_t seed, int most);

  static Counts counts();
  // What was recorded on which stream by recordDataPtrOnStream.
  static std::vector<std::pair<const void*, c10::Stream>> recorded_memory();
  static void reset_counts();

  // Waits until all streams of all devices are empty; not counted as a host wait.
  static void finish();
};

}  // namespace pareprop::testing
