#include "pareprop/graph/step_chrome.h"

#include <algorithm>
#include <map>
#include <vector>

#include "pareprop/graph/chrome_events.h"
#include "pareprop/graph/step_summary.h"
#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

// From top to bottom: data, forward, lane by lane with gradients above recovery, the others.
struct Row {
  int group;
  int lane;
  int place;

  auto operator<=>(const Row&) const = default;
};

Row row_of(const StepSpan& span) {
  const int kind = static_cast<int>(span.kind);
  if (!is_task(span.kind)) return {kind, 0, 0};
  const bool recovers = span.kind == StepKind::recover;
  return {static_cast<int>(StepKind::recover), span.lane, recovers ? 100 : kind};
}

std::string title_of(const StepSpan& span) {
  const std::string kind(name(span.kind));
  return is_task(span.kind) ? "lane " + std::to_string(span.lane) + " " + kind : kind;
}

// Spans of one row, so placed that none of a strand overlaps another.
struct Strands {
  std::string title;
  std::vector<std::vector<const StepSpan*>> strands;

  // In the order of beginning.
  void add(const StepSpan& span) {
    const auto free = std::find_if(strands.begin(), strands.end(), [&](const auto& strand) {
      return strand.back()->end <= span.begin;
    });
    (free == strands.end() ? strands.emplace_back() : *free).push_back(&span);
  }
};

std::map<Row, Strands> rows_of(const StepTrace& trace) {
  std::vector<const StepSpan*> spans;
  for (const StepSpan& span : trace.spans) spans.push_back(&span);
  std::stable_sort(spans.begin(), spans.end(),
                   [](const StepSpan* a, const StepSpan* b) { return a->begin < b->begin; });
  std::map<Row, Strands> rows;
  for (const StepSpan* span : spans) {
    Strands& row = rows[row_of(*span)];
    row.title = title_of(*span);
    row.add(*span);
  }
  return rows;
}

std::string arguments(const StepSpan& span) {
  if (span.stack == StepSpan::kNone) return "";
  const Task place{.branch = span.branch};
  return R"("stage":)" + std::to_string(span.stack + 1) + R"(,"block":)" +
         std::to_string(place.block()) + R"(,"branch":)" + text::json(place.is_f() ? "F" : "G") +
         R"(,"lane":)" + std::to_string(span.lane);
}

void add_memory(ChromeEvents& events, const StepTrace& trace) {
  for (const MemorySample& sample : trace.samples) {
    const double time = sample.time - trace.begin;
    std::string by_tag;
    for (std::size_t i = 0; i < trace.tags.size(); ++i) {
      by_tag += (i == 0 ? "" : ",") + text::json(trace.tags[i]) + ":" +
                std::to_string(sample.bytes.at(i));
    }
    events.add_counter("memory", time, by_tag);
    events.add_counter("memory in all", time, R"("bytes":)" + std::to_string(sample.total));
  }
}

}  // namespace

std::string chrome_trace(const StepTrace& trace) {
  // Row 1 would be the main thread of process 1.
  constexpr int kFirst = 2;
  ChromeEvents events(trace.title);
  int number = kFirst;
  for (const auto& [place, row] : rows_of(trace)) {
    for (std::size_t i = 0; i < row.strands.size(); ++i, ++number) {
      events.add_row(number, i == 0 ? row.title : row.title + " " + std::to_string(i + 1));
      for (const StepSpan* span : row.strands[i]) {
        events.add_slice(number, span->name, name(span->kind), span->begin - trace.begin,
                         span->end - trace.begin, arguments(*span));
      }
    }
  }
  add_memory(events, trace);
  return events.text(R"("otherData":)" + to_json(summarise(trace)) + ",");
}

}  // namespace pareprop
