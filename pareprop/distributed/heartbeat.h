#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace pareprop::distributed {

// Tells the other processes, through the store that all share, that this one lives, and how many
// operations it has begun; finds out which of them is to blame when an operation fails.
//
// The process that serves the store may be stopped, and its answers with it: no function here waits
// longer than the time-out and a few seconds, and none but the constructor longer than ten seconds.
class Heartbeat {
 public:
  // Returns when all have come. Throws std::runtime_error that names those that did not.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, int rank, int world,
            std::chrono::milliseconds timeout);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // This process begins another operation.
  void count_operation();

  // What kept an operation from ending: "rank 2 has stopped". Takes a few beats; all processes get
  // the same answer as the one that asked first, which may have ended since.
  std::string blame();

  // A last meeting, so that the one that serves the store does not leave while others still use
  // it. Gives up after a few beats.
  void leave();

 private:
  class Shared;  // with the thread, and with calls that were not answered in time

  void stop();

  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace pareprop::distributed
