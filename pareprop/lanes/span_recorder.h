#pragma once

#include <chrono>
#include <mutex>
#include <vector>

#include "pareprop/graph/timeline.h"
#include "pareprop/lanes/executor.h"

namespace pareprop {

// Records when each task ran, as the host saw it: on CPU lanes that is when it ran, on stream lanes
// when it was issued. Times are those of std::chrono::steady_clock. Costs two clock readings and
// two short locks a task. Thread-safe.
class SpanRecorder final : public Observer {
 public:
  // `also`, unless null, is told the same: before a task's time begins, and after it has ended.
  explicit SpanRecorder(Observer* also = nullptr);

  void on_begin(int task, int lane) override;
  void on_end(int task, int lane) override;

  // Forgets everything.
  void reset();

  // The tasks that have ended, in the order they began. One that began before reset(), or whose
  // body threw, is not among them.
  Timeline timeline() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    int task;
    int lane;
    Clock::time_point begin;
  };

  Observer* const also_;
  mutable std::mutex mutex_;
  std::vector<Open> open_;  // at most one a lane, so searched one by one
  std::vector<Span> spans_;
};

}  // namespace pareprop
