#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>

namespace c10 {
struct Event;
}

namespace pareprop {

// Whether the device works beside the host, on streams. The meta device does not, as the CPU for
// which it stands.
bool has_streams(c10::Device device);

// A point in the work of a device: on the CPU now, on an accelerator when its current stream will
// have done what it was given so far. Making one does not wait.
class Moment {
 public:
  explicit Moment(c10::Device device);

  // From `earlier`, of the same device, to this one. On an accelerator it waits until the work is
  // done.
  double ms_since(const Moment& earlier) const;

 private:
  friend class MomentClock;

  std::chrono::steady_clock::time_point host_;
  std::shared_ptr<c10::Event> event_;  // null: on the CPU
};

// Tells when moments of a device were, by the clock of the host.
class MomentClock {
 public:
  // On an accelerator it waits until the device has done everything.
  explicit MomentClock(c10::Device device);

  // Seconds of std::chrono::steady_clock. REQUIRES: the moment is of this device or of the CPU, and
  // older than the clock.
  double seconds(const Moment& moment) const;

 private:
  Moment last_;
  std::chrono::steady_clock::time_point last_was_;
};

}  // namespace pareprop
