#include "pareprop/graph/step_summary.h"

#include <algorithm>

#include "pareprop/graph/text.h"

namespace pareprop {
namespace {

struct Interval {
  double begin;
  double end;
};

bool is_gradient(StepKind kind) {
  return kind == StepKind::gradient || kind == StepKind::weight_gradient;
}

// When at least one gradient ran: in order, without overlaps.
std::vector<Interval> gradient_times(const StepTrace& trace) {
  std::vector<Interval> all, merged;
  for (const StepSpan& span : trace.spans) {
    if (is_gradient(span.kind)) all.push_back({span.begin, span.end});
  }
  std::sort(all.begin(), all.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (const Interval& next : all) {
    if (!merged.empty() && next.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, next.end);
    } else {
      merged.push_back(next);
    }
  }
  return merged;
}

double covered(const StepSpan& span, const std::vector<Interval>& times) {
  double seconds = 0.0;
  for (const Interval& time : times) {
    seconds += std::max(0.0, std::min(span.end, time.end) - std::max(span.begin, time.begin));
  }
  return seconds;
}

std::string milliseconds(double seconds) { return text::fixed(seconds * 1e3, 6); }

std::string overlap_json(const Overlap& overlap) {
  return R"("recover_ms":)" + milliseconds(overlap.recover) + R"(,"beside_gradient_ms":)" +
         milliseconds(overlap.beside) + R"(,"overlap":)" +
         (overlap.recover > 0.0 ? text::fixed(overlap.share(), 6) : "null");
}

}  // namespace

StepSummary summarise(const StepTrace& trace) {
  StepSummary summary{.seconds = trace.seconds()};
  summary.stacks.resize(static_cast<std::size_t>(trace.stacks));
  const std::vector<Interval> gradients = gradient_times(trace);
  for (const StepSpan& span : trace.spans) {
    const auto place =
        std::lower_bound(summary.kinds.begin(), summary.kinds.end(), span.kind,
                         [](const auto& entry, StepKind kind) { return entry.first < kind; });
    if (place != summary.kinds.end() && place->first == span.kind) {
      place->second += span.length();
    } else {
      summary.kinds.insert(place, {span.kind, span.length()});
    }
    if (span.kind != StepKind::recover) continue;
    const double beside = covered(span, gradients);
    for (Overlap* overlap :
         {&summary.overlap, &summary.stacks.at(static_cast<std::size_t>(span.stack))}) {
      overlap->recover += span.length();
      overlap->beside += beside;
    }
  }
  for (const MemorySample& sample : trace.samples) {
    summary.sampled_peak_bytes = std::max(summary.sampled_peak_bytes, sample.total);
  }
  return summary;
}

std::string to_json(const StepSummary& summary) {
  std::string out = R"({"step_ms":)" + milliseconds(summary.seconds) + "," +
                    overlap_json(summary.overlap) + R"(,"stages":[)";
  for (std::size_t i = 0; i < summary.stacks.size(); ++i) {
    out += (i == 0 ? "" : ",") + (R"({"stage":)" + std::to_string(i + 1)) + "," +
           overlap_json(summary.stacks[i]) + "}";
  }
  out += R"(],"kinds_ms":{)";
  for (std::size_t i = 0; i < summary.kinds.size(); ++i) {
    const auto& [kind, seconds] = summary.kinds[i];
    out += (i == 0 ? "" : ",") + text::json(name(kind)) + ":" + milliseconds(seconds);
  }
  return out + R"(},"sampled_peak_bytes":)" + std::to_string(summary.sampled_peak_bytes) + "}";
}

}  // namespace pareprop
