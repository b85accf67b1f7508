#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pareprop/graph/schedule.h"

namespace pareprop::testing {

// A backward pass with random depth, policies and schedule: the same for the same seed.
struct RandomBackward {
  explicit RandomBackward(std::uint64_t seed);

  // For SCOPED_TRACE.
  std::string text() const;

  std::uint64_t seed;
  KeepPlan plan;
  std::optional<KeepPlan> below;
  ScheduleOptions options;
  int ready = 0;
  TaskGraph graph;
};

// A graph of LaneRule::any with each kind of task on a lane of its own, or the graph as it is.
TaskGraph on_fixed_lanes(const TaskGraph& graph);

// Edges without which `id` could begin before `needed` has ended: (id, needed).
std::vector<std::pair<int, int>> essential_edges(const TaskGraph& graph);

// The data flow of Note [The chain of branches] on 64-bit words, with hashes in place of branches
// and of their gradients. Nothing is locked or atomic. Tapes of recovered branches share a ring of
// just as many places as Note [The backward schedule] says can be alive, so that a task that comes
// too early reads or overwrites what is not its own.
class HashedBackward {
 public:
  explicit HashedBackward(const RandomBackward& backward);

  // What the forward pass left. Once, before the first task.
  void forward();
  void run(const Task& task);

  // Every stream value that was wanted, gradient, weight gradient and tape left for the stack
  // below.
  std::vector<std::uint64_t> results() const;
  // The same, computed without any task.
  std::vector<std::uint64_t> expected() const;

 private:
  using Words = std::vector<std::uint64_t>;
  struct Stack {
    const KeepPlan* plan;
    Words value, tape;            // what the backward pass has
    Words true_value, true_tape;  // what the forward pass saw
  };

  Stack make_stack(const KeepPlan& plan, std::uint64_t seed) const;
  void recover(Stack& stack, int k, std::uint64_t& tape);
  std::uint64_t& tape(int k);
  std::vector<std::uint64_t> collect(const Stack& top, const Stack* below, const Words& gradient,
                                     const Words& weight_gradient) const;

  RandomBackward backward_;
  int branches_;
  Stack top_;
  std::optional<Stack> below_;
  Words gradient_, weight_gradient_, ring_;
};

}  // namespace pareprop::testing
