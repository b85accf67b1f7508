#include "pareprop/trace/step_svg.h"

#include <algorithm>
#include <functional>

#include "pareprop/draw/axis.h"
#include "pareprop/draw/svg.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"
#include "pareprop/trace/lane_style.h"
#include "pareprop/trace/memory_area.h"
#include "pareprop/trace/summary.h"

namespace pareprop {
namespace {

constexpr double kLeft = 112, kChart = 1240, kRight = 24, kWidth = kLeft + kChart + kRight;
constexpr double kTop = 92, kRow = 40, kBox = 30, kLegend = 28, kMemory = 150, kAxis = 24;
constexpr double kLetter = 6.7;  // width of a character of the 11 px labels
constexpr double kWordLetter = 7.3;

constexpr std::string_view kLight = R"(  .forward { fill: #c8b6ea; }
  .other { fill: #cfd4da; }
  .data { fill: #f0a3a0; }
  .communication { fill: #eeb4d8; fill-opacity: 0.7; }
  .optimizer { fill: #e3cf6f; }
  .stage { fill: #e2e6eb; }
)";
constexpr std::string_view kDark = R"(    .forward { fill: #54428a; }
    .other { fill: #4a525c; }
    .data { fill: #823a38; }
    .communication { fill: #7c3b66; }
    .optimizer { fill: #6d6118; }
    .stage { fill: #2a323d; }
)";

std::string_view css_class(StepKind kind) {
  switch (kind) {
    case StepKind::recover:
      return css_class(TaskKind::recover);
    case StepKind::gradient:
      return css_class(TaskKind::gradient);
    case StepKind::weight_gradient:
      return css_class(TaskKind::weight_gradient);
    case StepKind::update:
      return css_class(TaskKind::update);
    case StepKind::other_backward:
      return "other";
    case StepKind::data:
    case StepKind::forward:
    case StepKind::communication:
    case StepKind::optimizer:
      return name(kind);
  }
  return "";
}

struct Row {
  std::string title;
  std::function<bool(const StepSpan&)> shows;
};

// The training thread does one thing at a time, so all of it is one row.
std::vector<Row> rows_of(const StepTrace& trace) {
  const auto communicates = [](const StepSpan& span) {
    return span.kind == StepKind::communication;
  };
  std::vector<Row> rows{{"training", [=](const StepSpan& span) {
                           return !is_task(span.kind) && !communicates(span);
                         }}};
  int lanes = 0;
  for (const StepSpan& span : trace.spans) {
    if (is_task(span.kind)) lanes = std::max(lanes, span.lane + 1);
  }
  for (int lane = 0; lane < lanes; ++lane) {
    rows.push_back({"lane " + std::to_string(lane),
                    [=](const StepSpan& span) { return is_task(span.kind) && span.lane == lane; }});
  }
  if (std::any_of(trace.spans.begin(), trace.spans.end(), communicates)) {
    rows.push_back({"communication", communicates});
  }
  return rows;
}

class Drawing {
 public:
  explicit Drawing(const StepTrace& trace)
      : trace_(trace),
        summary_(summarise(trace)),
        rows_(rows_of(trace)),
        memory_(kTop + kRow * static_cast<double>(rows_.size() + 1) +
                (trace.samples.empty() ? 0.0 : kLegend)),
        axis_(trace.samples.empty() ? memory_ : memory_ + kMemory) {}

  std::string draw() const {
    const double height = axis_ + kAxis + 12;
    std::string out = svg::open(kWidth, height, "step", trace_.title, svg::Shrinks::yes);
    out += lane_style(std::string(kLight) + std::string(kMemoryLight),
                      std::string(kDark) + std::string(kMemoryDark));
    out += svg::rect("paper", 0, 0, kWidth, height);
    out += svg::words(kLeft, 24, trace_.title, "title");
    out += svg::words(kLeft, 44, figures(), "word") + draw_time_legend();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      out += svg::rect("lane", kLeft, row_top(i), kChart, kBox);
      out += svg::words(kLeft - 10, row_top(i) + kBox / 2 + 4, rows_[i].title, "word", "end");
    }
    out += draw_time_axis() + draw_stages();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (const StepSpan& span : trace_.spans) {
        if (rows_[i].shows(span)) out += draw_span(span, row_top(i));
      }
    }
    if (!trace_.samples.empty()) {
      out += draw_memory_legend();
      out += memory_area(trace_, {.left = kLeft,
                                  .top = memory_,
                                  .width = kChart,
                                  .height = kMemory - 10,
                                  .x = [this](double time) { return x(time); }});
    }
    return out + "</svg>\n";
  }

 private:
  double row_top(std::size_t row) const { return kTop + kRow * static_cast<double>(row + 1); }

  double x(double time) const {
    const double share = trace_.seconds() > 0.0 ? (time - trace_.begin) / trace_.seconds() : 0.0;
    return kLeft + std::clamp(share, 0.0, 1.0) * kChart;
  }

  std::string figures() const {
    std::string out = "step " + text::fixed(summary_.seconds * 1e3, 1) + " ms";
    if (summary_.overlap.recover > 0.0) {
      out += "; recover " + text::fixed(summary_.overlap.recover * 1e3, 1) + " ms, " +
             text::percent_text(summary_.overlap.share()) + " of it beside a gradient";
    }
    if (summary_.sampled_peak_bytes > 0) {
      out +=
          "; memory at most " + text::bytes_text(static_cast<double>(summary_.sampled_peak_bytes));
    }
    return out;
  }

  // The longest of the words that fits is shown.
  static std::string box(const std::string& classes, double left, double right, double top,
                         const std::string& tip, const std::vector<std::string>& words) {
    std::string out =
        "<g>" + svg::tooltip(tip) + "\n" + svg::rect(classes, left, top, right - left, kBox);
    for (const std::string& shown : words) {
      if (kLetter * static_cast<double>(shown.size()) + 2 > right - left) continue;
      out += svg::words((left + right) / 2, top + kBox / 2 + 4, shown, "label", "middle");
      break;
    }
    return out + "</g>\n";
  }

  std::string times(double begin, double end) const {
    const auto ms = [](double seconds) { return text::fixed(seconds * 1e3, 3); };
    return ": " + ms(begin - trace_.begin) + " to " + ms(end - trace_.begin) + " ms (" +
           ms(end - begin) + " ms)";
  }

  std::string draw_span(const StepSpan& span, double top) const {
    std::vector<std::string> words{span.name};
    if (span.branch != StepSpan::kNone) {
      const Task place{.branch = span.branch};
      const std::string branch = span.kind == StepKind::update ? "" : place.is_f() ? "F" : "G";
      words.push_back(branch + std::to_string(place.block()));
    }
    return box("box " + std::string(css_class(span.kind)), x(span.begin), x(span.end), top,
               span.name + times(span.begin, span.end), words);
  }

  std::string draw_stages() const {
    std::string out;
    for (const StackRun& run : trace_.runs) {
      const std::string pass = run.backward ? "backward" : "forward";
      const std::string stage = stage_name(trace_, run.stack);
      std::vector<std::string> words{pass};
      if (!stage.empty()) words = {stage + " " + pass, stage, std::to_string(run.stack + 1)};
      out += box("box stage", x(run.begin), x(run.end), kTop, words[0] + times(run.begin, run.end),
                 words);
    }
    return out;
  }

  std::string draw_time_axis() const {
    constexpr int kTicks = 14;
    const double length = trace_.seconds() * 1e3;
    if (length <= 0.0) return "";
    const double step = draw::tick_step(length, kTicks);
    std::string out;
    for (int i = 0; i * step <= length * (1.0 + 1e-9); ++i) {
      const double at = kLeft + i * step / length * kChart;
      out += svg::line("grid", at, kTop - 6, at, axis_);
      out += svg::words(at, axis_ + 16, text::fixed(i * step, draw::tick_decimals(step)), "tick",
                        "middle");
    }
    return out + svg::words(kLeft - 10, axis_ + 16, "ms", "word", "end");
  }

  struct LegendEntry {
    std::string classes, words;
  };
  static std::string draw_legend(double top, const std::vector<LegendEntry>& entries) {
    constexpr double kSwatch = 12, kBetween = 22;
    std::string out;
    double at = kLeft;
    for (const auto& [classes, words] : entries) {
      out += svg::rect(classes, at, top, kSwatch, kSwatch);
      out += svg::words(at + kSwatch + 6, top + 10, words, "word");
      at += kSwatch + kBetween + kWordLetter * static_cast<double>(words.size());
    }
    return out;
  }

  // The optimizer has memory too, by that name.
  std::string draw_time_legend() const {
    std::vector<LegendEntry> entries;
    for (const auto& [kind, seconds] : summary_.kinds) {
      entries.push_back({"box " + std::string(css_class(kind)),
                         kind == StepKind::optimizer ? "optimizer step" : std::string(name(kind))});
    }
    return draw_legend(56, entries);
  }

  std::string draw_memory_legend() const {
    std::vector<LegendEntry> entries;
    for (std::size_t tag = 0; tag < trace_.tags.size(); ++tag) {
      entries.push_back({memory_class(tag), trace_.tags[tag]});
    }
    return draw_legend(memory_ - kLegend + 4, entries);
  }

  const StepTrace& trace_;
  const StepSummary summary_;
  const std::vector<Row> rows_;
  const double memory_;
  const double axis_;
};

}  // namespace

std::string step_svg(const StepTrace& trace) { return Drawing(trace).draw(); }

}  // namespace pareprop
