#pragma once

#include "pareprop/lanes/executor.h"

namespace pareprop {

// All tasks on the caller's thread, in the order they were added: the oracle of every other
// executor, and the fallback. It has no state: callers do not wait for one another, and a body may
// run another graph on it. One that says it has two lanes gets the schedules of two, to be run in
// order: what they hold can be seen without the lanes' chance.
class SerialLane final : public Executor {
 public:
  explicit SerialLane(int says_lanes = 1) : lanes_(says_lanes) {}

  int lanes() const override { return lanes_; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

 private:
  int lanes_;
};

}  // namespace pareprop
