#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "pareprop/device/moment.h"
#include "pareprop/graph/timeline.h"
#include "pareprop/lanes/executor.h"
#include "pareprop/lanes/span_recorder.h"

namespace pareprop {

// Records when the tasks of a pass ran: on the CPU by the clock, on an accelerator by events on the
// streams of the lanes. Recording does not wait for the device.
class PassTimes final : public Observer {
 public:
  // `also` is told the same, outside of the time of a task.
  PassTimes(c10::Device device, Observer* also);

  // REQUIRES, on an accelerator: called by one thread, with the lane's stream as the current one.
  void on_begin(int task, int lane) override;
  void on_end(int task, int lane) override;

  // The tasks that have ended, in the order they began, in seconds of std::chrono::steady_clock. On
  // an accelerator it waits until the device has done everything.
  Timeline timeline() const;

 private:
  struct OnDevice {
    int task, lane;
    Moment begin, end;
  };

  const c10::Device device_;
  Observer* const also_;
  SpanRecorder on_cpu_;
  std::vector<OnDevice> on_device_;
};

}  // namespace pareprop
