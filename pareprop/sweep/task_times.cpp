#include "pareprop/sweep/task_times.h"

namespace pareprop {

void TaskTimes::add(const TaskGraph& graph, const Timeline& timeline) {
  constexpr double kMs = 1e3;
  for (const Span& span : timeline.spans) {
    switch (graph[span.task].kind) {
      case TaskKind::recover:
        recover_ms += kMs * span.length();
        break;
      case TaskKind::gradient:
        gradient_ms += kMs * span.length();
        break;
      case TaskKind::weight_gradient:
        weight_gradient_ms += kMs * span.length();
        break;
      case TaskKind::update:  // benchmarks time passes without optimizer
        break;
    }
  }
  overlap_ms += kMs * overlapped(graph, timeline);
}

}  // namespace pareprop
