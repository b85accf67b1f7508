#include "pareprop/trace/lane_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "pareprop/draw/axis.h"
#include "pareprop/draw/svg.h"
#include "pareprop/text/fixed.h"
#include "pareprop/trace/lane_style.h"

namespace pareprop {
namespace {

constexpr double kLeft = 64, kRight = 24, kTop = 64, kRow = 44, kBox = 34, kBottom = 44;
constexpr double kLetter = 6.7;  // width of a character of the 11 px labels
constexpr double kLegendLetter = 7.3;

constexpr std::array kKinds = {TaskKind::recover, TaskKind::gradient, TaskKind::weight_gradient,
                               TaskKind::update};

class Drawing {
 public:
  Drawing(const TaskGraph& graph, const Timeline& timeline, std::string_view title)
      : graph_(graph),
        timeline_(timeline),
        title_(title),
        lanes_(std::max(graph.lanes(), timeline.lanes())),
        makespan_(timeline.makespan()),
        chart_(chart_width()),
        axis_(kTop + kRow * lanes_) {}

  std::string draw() const {
    const double width = kLeft + chart_ + kRight, height = axis_ + kBottom;
    std::string out = svg::open(width, height, "lanes", title_) + lane_style();
    out += svg::rect("paper", 0, 0, width, height);
    out += svg::words(kLeft, 24, title_, "title") + draw_legend();
    for (int lane = 0; lane < lanes_; ++lane) {
      const double y = kTop + kRow * lane;
      out += svg::rect("lane", kLeft, y, chart_, kBox);
      out +=
          svg::words(kLeft - 10, y + kBox / 2 + 4, "lane " + std::to_string(lane), "word", "end");
    }
    out += draw_axis();
    for (const Span& span : timeline_.spans) out += draw_span(span);
    return out + "</svg>\n";
  }

 private:
  // Room for the labels of the lane with the most tasks, within what a page can show.
  double chart_width() const {
    constexpr double kPerTask = 42, kLeast = 800, kMost = 6000;
    std::vector<int> tasks(static_cast<std::size_t>(lanes_), 0);
    int most = 0;
    for (const Span& span : timeline_.spans) {
      most = std::max(most, ++tasks[static_cast<std::size_t>(span.lane)]);
    }
    return std::clamp(kPerTask * most, kLeast, kMost);
  }

  double x(double time) const {
    return makespan_ > 0.0 ? kLeft + (time - timeline_.begin()) / makespan_ * chart_ : kLeft;
  }

  std::string draw_span(const Span& span) const {
    const Task& task = graph_[span.task];
    const double left = x(span.begin), right = x(span.end), top = kTop + kRow * span.lane;
    const std::string times =
        label(task) + ": " + text::fixed((span.begin - timeline_.begin()) * 1e3, 3) + " to " +
        text::fixed((span.end - timeline_.begin()) * 1e3, 3) + " ms (" +
        text::fixed(span.length() * 1e3, 3) + " ms) on lane " + std::to_string(span.lane);
    std::string out =
        "<g>" + svg::tooltip(times) + "\n" +
        svg::rect("box " + std::string(css_class(task.kind)), left, top, right - left, kBox);
    std::string shown = pareprop::short_label(task);
    auto fits = [&] { return kLetter * static_cast<double>(shown.size()) + 4 <= right - left; };
    if (!fits()) shown.erase(0, 2);
    if (fits()) out += svg::words((left + right) / 2, top + kBox / 2 + 4, shown, "label", "middle");
    return out + "</g>\n";
  }

  std::string draw_axis() const {
    constexpr double kPixelsPerTick = 90;
    const double length = makespan_ * 1e3;
    if (length <= 0.0) return "";
    const double step = draw::tick_step(length, static_cast<int>(chart_ / kPixelsPerTick));
    std::string out;
    for (int i = 0; i * step <= length * (1.0 + 1e-9); ++i) {
      const double at = kLeft + i * step / length * chart_;
      out += svg::line("grid", at, kTop - 6, at, axis_);
      out += svg::words(at, axis_ + 16, text::fixed(i * step, draw::tick_decimals(step)), "tick",
                        "middle");
    }
    return out + svg::words(kLeft - 10, axis_ + 16, "ms", "word", "end");
  }

  std::string draw_legend() const {
    constexpr double kSwatch = 12, kY = 36;
    std::string out;
    double at = kLeft;
    for (TaskKind kind : kKinds) {
      const auto& tasks = graph_.tasks();
      if (std::none_of(tasks.begin(), tasks.end(),
                       [&](const Task& task) { return task.kind == kind; })) {
        continue;
      }
      const std::string entry =
          std::string(1, pareprop::letter(kind)) + " " + std::string(name(kind));
      out += svg::rect("box " + std::string(css_class(kind)), at, kY, kSwatch, kSwatch);
      out += svg::words(at + kSwatch + 6, kY + 10, entry, "word");
      at += kSwatch + 22 + kLegendLetter * static_cast<double>(entry.size());
    }
    std::string figures = text::fixed(makespan_ * 1e3, 2) + " ms";
    for (int lane = 0; lane < lanes_; ++lane) {
      const double share = makespan_ > 0.0 ? timeline_.busy(lane) / makespan_ : 0.0;
      figures += ", lane " + std::to_string(lane) + " busy " + text::fixed(100 * share, 0) + "%";
    }
    return out + svg::words(kLeft + chart_, kY + 10, figures, "word", "end");
  }

  const TaskGraph& graph_;
  const Timeline& timeline_;
  const std::string_view title_;
  const int lanes_;
  const double makespan_;
  const double chart_;
  const double axis_;
};

}  // namespace

std::string lane_svg(const TaskGraph& graph, const Timeline& timeline, std::string_view title) {
  check_timeline(graph, timeline);
  return Drawing(graph, timeline, title).draw();
}

}  // namespace pareprop
