#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace pareprop::train {

// Tells the other processes, through the store that all share, that this one lives, and how many
// operations it has begun; finds out which of them is to blame when an operation fails.
class Heartbeat {
 public:
  // Returns when all have come. Throws std::runtime_error that names those that did not.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
            std::chrono::milliseconds timeout);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // This process begins another operation.
  void count_operation() { ++operations_; }

  // What kept an operation from ending: "rank 2 has stopped". Takes a few beats; all processes get
  // the same answer as the one that asked first, which may have ended since.
  std::string blame();

  // A last meeting, so that the one that serves the store does not leave while others still use
  // it. Gives up after a few beats.
  void leave();

 private:
  struct Beat {
    std::int64_t number = 0;
    std::int64_t operations = 0;
  };

  void run();
  void send(c10d::Store& store);
  void stop();
  std::vector<Beat> beats();
  std::string find_culprit();
  std::string key(int rank) const { return "beat/" + std::to_string(rank); }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, world_;
  const std::chrono::milliseconds interval_;
  std::atomic<std::int64_t> operations_ = 0;
  std::int64_t sent_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pareprop::train
