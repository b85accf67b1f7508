#include "pareprop/trace/step_trace.h"

#include <algorithm>

namespace pareprop {
namespace {

StepKind step_kind(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return StepKind::recover;
    case TaskKind::gradient:
      return StepKind::gradient;
    case TaskKind::weight_gradient:
      return StepKind::weight_gradient;
    case TaskKind::update:
      return StepKind::update;
  }
  return StepKind::gradient;
}

std::string with_stage(const StepTrace& trace, int stack, const std::string& what) {
  const std::string stage = stage_name(trace, stack);
  return stage.empty() ? what : stage + " " + what;
}

// Between two runs; -1 for the end of the network at the input, `stacks` for that at the loss.
std::string boundary_name(const StepTrace& trace, int lower, int upper) {
  if (lower < 0) return "embedding";
  if (upper >= trace.stacks) return "head and loss";
  return "boundary of stages " + std::to_string(lower + 1) + " and " + std::to_string(upper + 1);
}

}  // namespace

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::data:
      return "data";
    case StepKind::forward:
      return "forward";
    case StepKind::recover:
      return name(TaskKind::recover);
    case StepKind::gradient:
      return name(TaskKind::gradient);
    case StepKind::weight_gradient:
      return name(TaskKind::weight_gradient);
    case StepKind::update:
      return name(TaskKind::update);
    case StepKind::other_backward:
      return "other backward";
    case StepKind::communication:
      return "communication";
    case StepKind::optimizer:
      return "optimizer";
  }
  return "?";
}

bool is_task(StepKind kind) {
  return kind == StepKind::recover || kind == StepKind::gradient ||
         kind == StepKind::weight_gradient || kind == StepKind::update;
}

std::string stage_name(const StepTrace& trace, int stack) {
  return trace.stacks > 1 ? "stage " + std::to_string(stack + 1) : "";
}

void add_forward(StepTrace& trace, const Timeline& timeline, int stack) {
  for (const Span& span : timeline.spans) {
    const Task place{.branch = span.task};
    const std::string what =
        std::string("forward ") + (place.is_f() ? "F" : "G") + std::to_string(place.block());
    trace.spans.push_back({.kind = StepKind::forward,
                           .name = with_stage(trace, stack, what),
                           .begin = span.begin,
                           .end = span.end,
                           .lane = span.lane,
                           .stack = stack,
                           .branch = span.task});
  }
  if (!timeline.spans.empty()) {
    trace.runs.push_back({stack, /*backward=*/false, timeline.begin(), timeline.end()});
  }
}

void add_backward(StepTrace& trace, const TaskGraph& graph, const Timeline& timeline, int stack,
                  int below) {
  check_timeline(graph, timeline);
  for (const Span& span : timeline.spans) {
    Task task = graph[span.task];
    const int owner = task.stack == 0 ? stack : below;
    task.stack = 0;
    trace.spans.push_back({.kind = step_kind(task.kind),
                           .name = with_stage(trace, owner, label(task)),
                           .begin = span.begin,
                           .end = span.end,
                           .lane = span.lane,
                           .stack = owner,
                           .branch = task.branch});
  }
  if (!timeline.spans.empty()) {
    trace.runs.push_back({stack, /*backward=*/true, timeline.begin(), timeline.end()});
  }
}

void add_between_stacks(StepTrace& trace, bool backward, double begin, double end) {
  const StepKind kind = backward ? StepKind::other_backward : StepKind::forward;
  std::vector<StackRun> runs;
  std::copy_if(trace.runs.begin(), trace.runs.end(), std::back_inserter(runs),
               [&](const StackRun& run) {
                 return run.backward == backward && run.begin >= begin && run.end <= end;
               });
  const auto add = [&](const std::string& what, double from, double to) {
    if (to <= from) return;
    trace.spans.push_back({.kind = kind, .name = what, .begin = from, .end = to});
  };
  if (runs.empty()) return add(backward ? "backward" : "forward", begin, end);

  std::sort(runs.begin(), runs.end(),
            [](const StackRun& a, const StackRun& b) { return a.begin < b.begin; });
  int before = backward ? trace.stacks : -1;
  double since = begin;
  const auto add_before = [&](int stack, double until) {
    add(boundary_name(trace, std::min(before, stack), std::max(before, stack)), since, until);
  };
  for (const StackRun& run : runs) {
    add_before(run.stack, run.begin);
    before = run.stack;
    since = run.end;
  }
  add_before(backward ? -1 : trace.stacks, end);
}

}  // namespace pareprop
