#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pareprop/lanes/executor.h"
#include "pareprop/lanes/lane_order.h"
#include "pareprop/memory/meter.h"

namespace pareprop::plan {

// The bytes that the meter saw of one task of a backward pass. Live ones of the whole process.
struct MeteredTask {
  std::int64_t before = 0;
  std::int64_t peak = 0;
  double macs = 0.0;  // of the meta device
};

// The backward pass of one stack.
struct MeteredRun {
  std::int64_t above = 0;  // highest between the run before, or begin(), and this one
  TaskGraph graph;
  std::vector<MeteredTask> tasks;  // by task of the graph
  std::int64_t after = 0;          // live when the last has ended

  // The most that can be live in any order that the graph allows on its lanes.
  std::int64_t worst_meeting() const;
};

// What a MeteredLane stands for, with how many lanes: that decides whether schedules overlap, and
// on streams when memory goes back (Note [Memory between lanes]) and which pool it is of.
struct LanesMeant {
  int count = 1;
  bool streams = false;  // of an accelerator; else threads
};

// Runs tasks in the order of their graph, on the caller's thread, and meters each: for steps on the
// meta device. On streams that is also the order in which the host allocates and frees. Meters all
// tensors, or only activations: all but weights, gradients and optimizer.
class MeteredLane final : public Executor {
 public:
  explicit MeteredLane(LanesMeant lanes, bool only_activations = false)
      : meant_(lanes), only_activations_(only_activations) {}

  int lanes() const override { return meant_.count; }
  bool asynchronous() const override { return meant_.streams; }
  void hand_back(std::shared_ptr<const void> memory, int owner) override;
  void run(const TaskGraph& graph, const TaskBody& body, Observer* observer = nullptr) override;

  // Runs since then, in the order in which they ran: backward passes, of the network's last stack
  // first; on streams forward passes before them.
  void begin();
  const std::vector<MeteredRun>& runs() const { return runs_; }
  std::int64_t peak_since_last_run() const;
  memory::Usage usage() const;  // now, with the peaks since then

 private:
  void run_tasks(const TaskGraph& graph, const TaskBody& body, std::vector<MeteredTask>& tasks);
  std::int64_t live() const;
  void reset_peaks();

  LanesMeant meant_;
  bool only_activations_;
  std::vector<MeteredRun> runs_;
  std::optional<LaneOrder> order_;  // of the run under way, on streams
  memory::Usage peaks_;             // before the last reset
};

}  // namespace pareprop::plan
