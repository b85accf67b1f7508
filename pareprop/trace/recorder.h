#pragma once

#include <memory>
#include <string>

#include "pareprop/models/model.h"
#include "pareprop/trace/step_trace.h"

namespace pareprop {

// Records a training step: what the network's stacks did on their lanes, what the caller says that
// it does besides, and live memory all the while. Steps between finish() and begin() cost what
// StackOptions::on_trace costs. Thread-safe but for begin() and finish().
class StepRecorder {
 public:
  // Gives hooks to the network's stacks, whose options stay as they are otherwise: after
  // Model::set_stack_options(), which would take them away. Stacks of mode `auto` choose anew.
  explicit StepRecorder(models::Model& model);
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

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
  std::shared_ptr<State> state_;  // the stacks may outlive this
};

// Adds a span from its making to its end. `recorder` null: does nothing.
class StepScope {
 public:
  StepScope(StepRecorder* recorder, StepKind kind, std::string name);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  StepRecorder* const recorder_;
  const StepKind kind_;
  std::string name_;
  const double begin_;
};

}  // namespace pareprop
