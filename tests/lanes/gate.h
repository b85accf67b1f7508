#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pareprop::testing {

// Far longer than anything takes that is going to happen.
constexpr std::chrono::seconds kNever{20};
// Long enough for a task that nothing holds back to run, so that one that has not was held back.
constexpr std::chrono::milliseconds kMoment{30};

// Closed until open() is called. The mutex also orders memory between the two sides.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

  // False when the time passed and it is still closed.
  bool wait(std::chrono::milliseconds at_most = kNever) {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, at_most, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

}  // namespace pareprop::testing
