#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pareprop/reversible/network.h"
#include "pareprop/trace/step_trace.h"

namespace pareprop {

// Records a training step: what the network's stacks did on their lanes, what the caller says that
// it does besides, and live memory all the while. Steps between finish() and begin() cost two
// readings of the clock a task. Thread-safe but for begin() and finish().
class TraceRecorder {
 public:
  // Watches the network's stacks until it goes; their plans may change meanwhile.
  explicit TraceRecorder(const Network& network);
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void begin(std::string title);
  // What was recorded since begin().
  StepTrace finish();

  // Seconds of the clock that all times are of.
  static double now();
  // Something that took from `begin` to `end`. Of kind forward or other_backward: a whole pass
  // through the network; what its stacks had no part in gets spans. Not tasks of stacks.
  void add(StepKind kind, std::string name, double begin, double end);

 private:
  struct State;
  std::shared_ptr<State> state_;  // a pass under way may outlive this
  std::vector<Watch> watches_;
};

// Adds a span from its making to its end. `recorder` null: does nothing.
class TraceScope {
 public:
  TraceScope(TraceRecorder* recorder, StepKind kind, std::string name);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceRecorder* const recorder_;
  const StepKind kind_;
  std::string name_;
  const double begin_;
};

}  // namespace pareprop
