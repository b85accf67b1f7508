#include "pareprop/lanes/span_recorder.h"

#include <algorithm>

namespace pareprop {
namespace {

// So that the first few hundred tasks do not allocate while they are timed.
constexpr std::size_t kReserved = 512;

}  // namespace

SpanRecorder::SpanRecorder(Observer* also) : also_(also) { spans_.reserve(kReserved); }

void SpanRecorder::on_begin(int task, int lane) {
  if (also_ != nullptr) also_->on_begin(task, lane);
  const std::lock_guard lock(mutex_);
  // What is still open on this lane belongs to a task whose body threw.
  const auto same =
      std::find_if(open_.begin(), open_.end(), [&](const Open& open) { return open.lane == lane; });
  Open& open = same == open_.end() ? open_.emplace_back() : *same;
  open = {task, lane, Clock::now()};
}

void SpanRecorder::on_end(int task, int lane) {
  const Clock::time_point end = Clock::now();
  if (also_ != nullptr) also_->on_end(task, lane);
  const std::lock_guard lock(mutex_);
  const auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& candidate) {
    return candidate.task == task && candidate.lane == lane;
  });
  if (open == open_.end()) return;
  const auto seconds = [](Clock::time_point at) {
    return std::chrono::duration<double>(at.time_since_epoch()).count();
  };
  Span span;
  span.task = task;
  span.lane = lane;
  span.begin = seconds(open->begin);
  span.end = seconds(end);
  open_.erase(open);
  spans_.push_back(span);
}

void SpanRecorder::reset() {
  const std::lock_guard lock(mutex_);
  open_.clear();
  spans_.clear();
}

Timeline SpanRecorder::timeline() const {
  Timeline timeline;
  {
    const std::lock_guard lock(mutex_);
    timeline.spans = spans_;
  }
  std::stable_sort(timeline.spans.begin(), timeline.spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  return timeline;
}

}  // namespace pareprop
