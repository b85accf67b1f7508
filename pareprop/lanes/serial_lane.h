#pragma once

#include "pareprop/lanes/executor.h"

namespace pareprop {

// All tasks on the caller's thread, in the order they were added: the oracle of every other
// executor, and the fallback. It has no state: callers do not wait for one another, and a body may
// run another graph on it.
class SerialLane final : public Executor {
 public:
  int lanes() const override { return 1; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;
};

}  // namespace pareprop
