#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pareprop/graph/timeline.h"

namespace pareprop {

// The kinds of spans in a training step.
enum class StepKind {
  data,     // waiting for a batch, or making it
  forward,  // a branch of a stack, or a layer outside of the stacks
  recover,  // this and the next three: as in TaskKind
  gradient,
  weight_gradient,
  update,
  other_backward,  // outside of the stacks: the head, stage boundaries, the embedding
  communication,   // between processes
  optimizer,
};

std::string_view name(StepKind kind);
// Whether it is a task of the backward pass of a stack; lanes run these.
bool is_task(StepKind kind);

struct StepSpan {
  static constexpr int kNone = -1;

  StepKind kind = StepKind::forward;
  std::string name = {};
  double begin = 0.0;
  double end = 0.0;
  int lane = 0;
  int stack = kNone;   // number of the stack, from the input
  int branch = kNone;  // number of the branch in the stack

  double length() const { return end - begin; }
};

// When a stack of the network was computed or differentiated.
struct StackRun {
  int stack = 0;
  bool backward = false;
  double begin = 0.0;
  double end = 0.0;
};

struct MemorySample {
  double time = 0.0;
  std::vector<std::int64_t> bytes = {};  // one for each of StepTrace::tags
  std::int64_t total = 0;                // counted separately: not always the sum of `bytes`
};

// One training step of a network with any number of stacks. All times are seconds of one clock,
// which may start anywhere. A plain value.
struct StepTrace {
  std::string title = {};
  int stacks = 0;  // of the network; several are named stage 1, stage 2, ...
  double begin = 0.0;
  double end = 0.0;
  std::vector<StepSpan> spans = {};
  std::vector<StackRun> runs = {};
  std::vector<std::string> tags = {};
  std::vector<MemorySample> samples = {};  // in the order of time

  double seconds() const { return end - begin; }
};

// "stage 2"; empty in a network with one stack.
std::string stage_name(const StepTrace& trace, int stack);

// Adds the forward pass of a stack: the task of a span is a branch.
void add_forward(StepTrace& trace, const Timeline& timeline, int stack);

// Adds the backward pass of a stack. Tasks of the stack below it are those of `below`, and named as
// such. Throws std::invalid_argument if the timeline does not belong to this graph.
void add_backward(StepTrace& trace, const TaskGraph& graph, const Timeline& timeline, int stack,
                  int below);

// Adds spans of kind forward or other_backward for the parts of a pass through the network, from
// `begin` to `end`, that are outside of all stacks. REQUIRES: the stacks were added before.
void add_between_stacks(StepTrace& trace, bool backward, double begin, double end);

}  // namespace pareprop
