#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pareprop/device/moment.h"
#include "pareprop/reversible/network.h"
#include "pareprop/trace/step_trace.h"

namespace pareprop {

// Records a training step: what the stacks of the network did on their lanes, spans that the caller
// adds, and live memory over time. Steps that are not recorded cost two readings of the clock for
// each task. Thread-safe, except begin() and finish().
class TraceRecorder {
 public:
  // Watches the stacks of the network until the destructor; their plans may change.
  explicit TraceRecorder(const Network& network);
  ~TraceRecorder();
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void begin(std::string title);
  // Ends the recording and returns what happened since begin(). On an accelerator it waits until
  // the device has done everything.
  StepTrace finish();

  // The clock of all times here, in seconds.
  static double now();
  // Adds a span of the caller from `begin` to `end`. With kind forward or other_backward it is a
  // whole pass through the network, and the recorder cuts it into the parts outside of the stacks.
  // The recorder adds the tasks of stacks itself.
  void add(StepKind kind, std::string name, double begin, double end);

 private:
  friend class TraceScope;

  struct State;
  std::shared_ptr<State> state_;  // a pass that runs may outlive the recorder
  std::vector<Watch> watches_;
};

// Adds a span from its construction to its destruction. A null `recorder`: does nothing. Passes and
// the optimizer are work of the network's device: on an accelerator their times are those at which
// it did what was issued between.
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
  std::optional<Moment> begin_;
};

}  // namespace pareprop
