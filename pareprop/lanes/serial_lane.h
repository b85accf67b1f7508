#pragma once

#include "pareprop/lanes/executor.h"

namespace pareprop {

// All tasks on the caller's thread, in the order they were added: the oracle of every other
// executor, and the fallback.
class SerialLane final : public Executor {
 public:
  int lanes() const override { return 1; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;
};

}  // namespace pareprop
