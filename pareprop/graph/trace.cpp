#include "pareprop/graph/trace.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "pareprop/graph/chrome_events.h"
#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

constexpr int kKinds = 3;

// Gradients above recovery within a lane.
int row(int lane, TaskKind kind) {
  const int place = kind == TaskKind::gradient ? 0 : kind == TaskKind::weight_gradient ? 1 : 2;
  return 1 + kKinds * lane + place;
}

std::string arguments(const Task& task, const Span& span) {
  return R"("task":)" + std::to_string(span.task) + R"(,"lane":)" + std::to_string(span.lane) +
         R"(,"block":)" + std::to_string(task.block()) + R"(,"branch":)" +
         text::json(task.is_f() ? "F" : "G") + R"(,"stack":)" + std::to_string(task.stack);
}

}  // namespace

std::string chrome_trace(const TaskGraph& graph, const Timeline& timeline,
                         std::string_view process) {
  check_timeline(graph, timeline);
  ChromeEvents events(process);
  std::set<std::pair<int, TaskKind>> rows;
  for (const Span& span : timeline.spans) rows.emplace(span.lane, graph[span.task].kind);
  for (const auto& [lane, kind] : rows) {
    events.add_row(row(lane, kind), "lane " + std::to_string(lane) + " " + std::string(name(kind)));
  }

  std::vector<Span> spans = timeline.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const double zero = timeline.begin();
  for (const Span& span : spans) {
    const Task& task = graph[span.task];
    events.add_slice(row(span.lane, task.kind), label(task), name(task.kind), span.begin - zero,
                     span.end - zero, arguments(task, span));
  }
  return events.text();
}

}  // namespace pareprop
