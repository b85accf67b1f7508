#include "pareprop/graph/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

constexpr int kKinds = 3;
constexpr int kProcess = 1;

// Gradients above recovery within a lane; 0 is taken by the process itself.
int row(int lane, TaskKind kind) {
  const int place = kind == TaskKind::gradient ? 0 : kind == TaskKind::weight_gradient ? 1 : 2;
  return 1 + kKinds * lane + place;
}

std::string metadata(std::string_view name, int tid, const std::string& arguments) {
  return R"({"ph":"M","name":")" + std::string(name) + R"(","pid":)" + std::to_string(kProcess) +
         R"(,"tid":)" + std::to_string(tid) + R"(,"args":{)" + arguments + "}}";
}

std::string microseconds(std::int64_t nanoseconds) {
  return text::fixed(static_cast<double>(nanoseconds) / 1e3, 3);
}

std::string slice(const Task& task, const Span& span, double zero) {
  // Both ends are rounded, not the length: slices that touch must not overlap by a nanosecond.
  const std::int64_t begin = std::llround((span.begin - zero) * 1e9);
  const std::int64_t end = std::llround((span.end - zero) * 1e9);
  return R"({"ph":"X","name":)" + text::json(label(task)) + R"(,"cat":)" +
         text::json(name(task.kind)) + R"(,"pid":)" + std::to_string(kProcess) + R"(,"tid":)" +
         std::to_string(row(span.lane, task.kind)) + R"(,"ts":)" + microseconds(begin) +
         R"(,"dur":)" + microseconds(end - begin) + R"(,"args":{"task":)" +
         std::to_string(span.task) + R"(,"lane":)" + std::to_string(span.lane) + R"(,"block":)" +
         std::to_string(task.block()) + R"(,"branch":)" + text::json(task.is_f() ? "F" : "G") +
         R"(,"stack":)" + std::to_string(task.stack) + "}}";
}

}  // namespace

std::string chrome_trace(const TaskGraph& graph, const Timeline& timeline,
                         std::string_view process) {
  check_timeline(graph, timeline);
  std::vector<std::string> events;
  events.push_back(metadata("process_name", 0, R"("name":)" + text::json(process)));

  std::set<std::pair<int, TaskKind>> rows;
  for (const Span& span : timeline.spans) rows.emplace(span.lane, graph[span.task].kind);
  for (const auto& [lane, kind] : rows) {
    const int tid = row(lane, kind);
    const std::string title = "lane " + std::to_string(lane) + " " + std::string(name(kind));
    events.push_back(metadata("thread_name", tid, R"("name":)" + text::json(title)));
    events.push_back(metadata("thread_sort_index", tid, R"("sort_index":)" + std::to_string(tid)));
  }

  std::vector<Span> spans = timeline.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  const double zero = timeline.begin();
  for (const Span& span : spans) events.push_back(slice(graph[span.task], span, zero));

  std::string out = R"({"displayTimeUnit":"ms","traceEvents":[)";
  for (std::size_t i = 0; i < events.size(); ++i) out += (i == 0 ? "\n" : ",\n") + events[i];
  return out + "\n]}\n";
}

}  // namespace pareprop
