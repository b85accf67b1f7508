#include "pareprop/trace/summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

using Json = nlohmann::ordered_json;

Json to_object(const Overlap& overlap) {
  return {{"recover_ms", overlap.recover * 1e3},
          {"beside_gradient_ms", overlap.beside * 1e3},
          {"overlap", overlap.recover > 0.0 ? Json(overlap.share()) : Json(nullptr)}};
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
  Json object{{"step_ms", summary.seconds * 1e3}};
  object.update(to_object(summary.overlap));
  object["stages"] = Json::array();
  for (std::size_t i = 0; i < summary.stacks.size(); ++i) {
    Json stage{{"stage", i + 1}};
    stage.update(to_object(summary.stacks[i]));
    object["stages"].push_back(std::move(stage));
  }
  Json& kinds = object["kinds_ms"] = Json::object();
  for (const auto& [kind, seconds] : summary.kinds) kinds[std::string(name(kind))] = seconds * 1e3;
  object["sampled_peak_bytes"] = summary.sampled_peak_bytes;
  return object.dump();
}

}  // namespace pareprop
