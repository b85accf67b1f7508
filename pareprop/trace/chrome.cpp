#include "pareprop/trace/chrome.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "pareprop/trace/summary.h"

namespace pareprop {
namespace {

using Json = nlohmann::ordered_json;

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

// Events of one process in Chrome's trace format, which Perfetto reads. Times are seconds from the
// beginning of the trace.
class Events {
 public:
  explicit Events(const std::string& process) { add_metadata("process_name", 0, "name", process); }

  // Rows are shown in the order of their numbers. Slices of a row must not overlap unless one is
  // inside the other.
  void add_row(int row, const std::string& title) {
    add_metadata("thread_name", row, "name", title);
    add_metadata("thread_sort_index", row, "sort_index", row);
  }

  void add_slice(int row, const StepSpan& span, double zero) {
    // Both ends are rounded, not the length: slices that touch must not overlap by a nanosecond.
    const std::int64_t from = nanoseconds(span.begin - zero), to = nanoseconds(span.end - zero);
    events_.push_back({{"ph", "X"},
                       {"name", span.name},
                       {"cat", name(span.kind)},
                       {"pid", 1},
                       {"tid", row},
                       {"ts", microseconds(from)},
                       {"dur", microseconds(to - from)},
                       {"args", place(span)}});
  }

  // Every argument is a curve.
  void add_counter(const std::string& name, double time, Json arguments) {
    events_.push_back({{"ph", "C"},
                       {"name", name},
                       {"pid", 1},
                       {"ts", microseconds(nanoseconds(time))},
                       {"args", std::move(arguments)}});
  }

  Json take() { return std::move(events_); }

 private:
  static std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
  static double microseconds(std::int64_t nanoseconds) {
    return static_cast<double>(nanoseconds) / 1e3;
  }

  static Json place(const StepSpan& span) {
    if (span.stack == StepSpan::kNone) return Json::object();
    const Task task{.branch = span.branch};
    return {{"stage", span.stack + 1},
            {"block", task.block()},
            {"branch", task.is_f() ? "F" : "G"},
            {"lane", span.lane}};
  }

  void add_metadata(const char* what, int row, const char* key, const Json& value) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", row}, {"args", {{key, value}}}});
  }

  Json events_ = Json::array();
};

void add_memory(Events& events, const StepTrace& trace) {
  for (const MemorySample& sample : trace.samples) {
    const double time = sample.time - trace.begin;
    Json by_tag = Json::object();
    for (std::size_t i = 0; i < trace.tags.size(); ++i) by_tag[trace.tags[i]] = sample.bytes.at(i);
    events.add_counter("memory", time, std::move(by_tag));
    events.add_counter("memory in all", time, {{"bytes", sample.total}});
  }
}

}  // namespace

std::string chrome_trace(const StepTrace& trace) {
  // Row 1 would be the main thread of process 1.
  constexpr int kFirst = 2;
  Events events(trace.title);
  int number = kFirst;
  for (const auto& [place, row] : rows_of(trace)) {
    for (std::size_t i = 0; i < row.strands.size(); ++i, ++number) {
      events.add_row(number, i == 0 ? row.title : row.title + " " + std::to_string(i + 1));
      for (const StepSpan* span : row.strands[i]) events.add_slice(number, *span, trace.begin);
    }
  }
  add_memory(events, trace);
  const Json file{{"displayTimeUnit", "ms"},
                  {"otherData", Json::parse(to_json(summarise(trace)))},
                  {"traceEvents", events.take()}};
  // A title may come from the name of a file, which need not be UTF-8.
  return file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pareprop
