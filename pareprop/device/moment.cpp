#include "pareprop/device/moment.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace pareprop {
namespace {

using Clock = std::chrono::steady_clock;

// Made when the device has nothing to do, so that it comes when it is recorded.
Moment moment_when_idle(c10::Device device) {
  if (has_streams(device)) {
    c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  }
  return Moment(device);
}

}  // namespace

bool has_streams(c10::Device device) { return !device.is_cpu() && !device.is_meta(); }

Moment::Moment(c10::Device device) : host_(Clock::now()) {
  if (!has_streams(device)) return;
  // The default of a backend is the kind of event that takes times.
  event_ = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

double Moment::ms_since(const Moment& earlier) const {
  if (!event_) {
    return std::chrono::duration<double, std::milli>(host_ - earlier.host_).count();
  }
  event_->synchronize();
  return earlier.event_->elapsedTime(*event_);
}

MomentClock::MomentClock(c10::Device device) : last_(moment_when_idle(device)) {
  if (last_.event_) last_.event_->synchronize();
  last_was_ = Clock::now();
}

double MomentClock::seconds(const Moment& moment) const {
  const auto seconds = [](Clock::time_point at) {
    return std::chrono::duration<double>(at.time_since_epoch()).count();
  };
  if (!moment.event_) return seconds(moment.host_);
  return seconds(last_was_) - last_.ms_since(moment) / 1e3;
}

}  // namespace pareprop
