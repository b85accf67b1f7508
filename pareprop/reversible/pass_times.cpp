#include "pareprop/reversible/pass_times.h"

#include <algorithm>

namespace pareprop {

PassTimes::PassTimes(c10::Device device, Observer* also)
    : device_(device), also_(also), on_cpu_(also) {}

void PassTimes::on_begin(int task, int lane) {
  if (!has_streams(device_)) return on_cpu_.on_begin(task, lane);
  if (also_ != nullptr) also_->on_begin(task, lane);
  const Moment now(device_);
  on_device_.push_back({task, lane, now, now});
}

void PassTimes::on_end(int task, int lane) {
  if (!has_streams(device_)) return on_cpu_.on_end(task, lane);
  on_device_.back().end = Moment(device_);
  if (also_ != nullptr) also_->on_end(task, lane);
}

Timeline PassTimes::timeline() const {
  if (!has_streams(device_)) return on_cpu_.timeline();
  const MomentClock clock(device_);
  Timeline timeline;
  for (const OnDevice& one : on_device_) {
    Span span;
    span.task = one.task;
    span.lane = one.lane;
    span.begin = clock.seconds(one.begin);
    span.end = clock.seconds(one.end);
    timeline.spans.push_back(span);
  }
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return timeline;
}

}  // namespace pareprop
