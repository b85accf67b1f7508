#pragma once

#include <cstdint>
#include <vector>

#include "pareprop/lanes/executor.h"

namespace pareprop::plan {

// One task of a backward pass, and the bytes that the meter saw. Live ones of the whole process.
struct MeteredTask {
  Task task;
  std::int64_t before = 0;
  std::int64_t peak = 0;
  double macs = 0.0;  // of the meta device
};

// The backward pass of one stack.
struct MeteredRun {
  std::int64_t above = 0;  // highest between the run before, or begin(), and this one
  std::vector<MeteredTask> tasks;
};

// Runs tasks in the order of their graph, on the caller's thread, and meters each: for steps on the
// meta device. Says that it has `lanes` lanes, which decides whether schedules overlap. Meters all
// tensors, or only activations: all but weights, gradients and optimizer.
class MeteredLane final : public Executor {
 public:
  explicit MeteredLane(int lanes, bool only_activations = false)
      : lanes_(lanes), only_activations_(only_activations) {}

  int lanes() const override { return lanes_; }
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

  // Runs since then, in the order in which they ran: the network's last stack first.
  void begin();
  const std::vector<MeteredRun>& runs() const { return runs_; }
  std::int64_t peak_since_last_run() const;

 private:
  std::int64_t live() const;

  int lanes_;
  bool only_activations_;
  std::vector<MeteredRun> runs_;
};

}  // namespace pareprop::plan
