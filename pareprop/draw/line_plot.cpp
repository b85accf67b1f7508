#include "pareprop/draw/line_plot.h"

#include <algorithm>
#include <cmath>

#include "pareprop/draw/axis.h"
#include "pareprop/draw/frame.h"
#include "pareprop/draw/svg.h"
#include "pareprop/draw/thinned.h"
#include "pareprop/text/fixed.h"

namespace pareprop::draw {
namespace {

constexpr double kChartHeight = 190, kAxisHeight = 24, kLabelHeight = 18;
constexpr int kPixelsPerTick = 75;

class Drawing {
 public:
  explicit Drawing(const LinePlot& plot)
      : plot_(plot), legend_(legend(entries(plot), kTitleBottom)) {
    Range x_range, y_range;
    for (const Series& series : plot.series) {
      for (const Point& point : series.points) {
        if (!shown(point)) continue;
        x_range.add(point.x);
        y_range.add(point.y);
      }
    }
    empty_ = x_range.empty();
    y_ = make_axis(y_range, {.log = plot.log_y, .from_zero = plot.y_from_zero});
    double widest = 0.0;
    for (const Tick& tick : y_.ticks) widest = std::max(widest, width_of(tick.label));
    left_ = kMargin + widest + 6;
    right_ = kWidth - 2 * kMargin;
    x_ = make_axis(x_range, {.log = plot.log_x,
                             .whole = plot.whole_x,
                             .rounded = false,
                             .ticks = static_cast<int>(right_ - left_) / kPixelsPerTick});
    top_ = kTitleBottom + legend_.height + (plot.y_label.empty() ? 8 : kLabelHeight + 6);
    bottom_ = top_ + kChartHeight;
  }

  std::string draw() const {
    const double height =
        bottom_ + kAxisHeight + (plot_.x_label.empty() ? 0.0 : kLabelHeight) + kMargin / 2;
    std::string out = begin(height, plot_.title) + legend_.elements + draw_axes();
    for (std::size_t i = 0; i < plot_.series.size(); ++i) out += draw_series(i);
    if (empty_) {
      out += svg::words((left_ + right_) / 2, (top_ + bottom_) / 2, "no data", "quiet", "middle");
    }
    return out + "</svg>\n";
  }

 private:
  static std::vector<LegendEntry> entries(const LinePlot& plot) {
    std::vector<LegendEntry> out;
    if (plot.series.size() < 2) return out;
    for (const Series& series : plot.series) {
      out.push_back({.name = series.name, .line = series.line, .dashed = series.dashed});
    }
    return out;
  }

  bool shown(const Point& point) const {
    return can_show(point.x, plot_.log_x) && can_show(point.y, plot_.log_y);
  }

  Point place(const Point& point) const {
    return {left_ + x_.place(point.x) * (right_ - left_),
            bottom_ - y_.place(point.y) * (bottom_ - top_)};
  }

  std::string draw_axes() const {
    std::string out;
    for (const Tick& tick : y_.ticks) {
      const double y = bottom_ - y_.place(tick.value) * (bottom_ - top_);
      out += svg::line("grid", left_, y, right_, y);
      out += svg::words(left_ - 6, y + 4, tick.label, "quiet", "end");
    }
    for (const Tick& tick : x_.ticks) {
      const double x = left_ + x_.place(tick.value) * (right_ - left_);
      out += svg::line("axis", x, bottom_, x, bottom_ + 5);
      out += svg::words(x, bottom_ + 18, tick.label, "quiet", "middle");
    }
    out += svg::line("axis", left_, bottom_, right_, bottom_);
    const double room = kWidth - 2 * kMargin;
    if (!plot_.y_label.empty()) {
      out += svg::words(kMargin, top_ - 10, shortened(plot_.y_label, room), "quiet");
    }
    if (!plot_.x_label.empty()) {
      out += svg::words(right_, bottom_ + kAxisHeight + 12, shortened(plot_.x_label, room), "quiet",
                        "end");
    }
    return out;
  }

  // Runs of points that can be shown.
  std::vector<std::vector<Point>> pieces_of(const Series& series) const {
    std::vector<std::vector<Point>> pieces(1);
    for (const Point& point : series.points) {
      if (shown(point)) {
        pieces.back().push_back(point);
      } else if (!pieces.back().empty()) {
        pieces.emplace_back();
      }
    }
    return pieces;
  }

  std::string draw_series(std::size_t i) const {
    constexpr std::size_t kFew = 64, kDense = 200;
    const Series& series = plot_.series[i];
    const bool few = series.points.size() <= kFew;
    std::string curves, dots;
    for (const std::vector<Point>& piece : pieces_of(series)) {
      if (series.line && piece.size() > 1) curves += path(piece);
      const bool visible = series.markers || !series.line || piece.size() == 1;
      if (!visible && !few) continue;
      for (const Point& point : piece) {
        dots += dot(place(point), visible ? "dot" : "hover", visible ? (series.line ? 3 : 5) : 6,
                    few ? values(series, point) : "");
      }
    }
    std::string out = "<g class=\"" + colour(i) + "\">" + svg::tooltip(series.name) + "\n";
    if (!curves.empty()) {
      out += "<path class=\"curve";
      if (series.points.size() > kDense) out += " dense";
      if (series.dashed) out += " dashed";
      out += "\" d=\"" + curves + "\"/>\n";
    }
    return out + dots + "</g>\n";
  }

  std::string path(const std::vector<Point>& piece) const {
    std::vector<Point> pixels;
    for (const Point& point : piece) pixels.push_back(place(point));
    std::string out;
    for (const Point& point : thinned(pixels)) {
      out += out.empty() ? "M" : "L";
      out += svg::number(point.x) + " " + svg::number(point.y);
    }
    return out;
  }

  static std::string dot(const Point& at, const std::string& classes, double radius,
                         const std::string& tip) {
    return "<circle class=\"" + classes + "\" cx=\"" + svg::number(at.x) + "\" cy=\"" +
           svg::number(at.y) + "\" r=\"" + svg::number(radius) + "\"" +
           (tip.empty() ? "/>\n" : ">" + svg::tooltip(tip) + "</circle>\n");
  }

  std::string values(const Series& series, const Point& point) const {
    constexpr int kDigits = 6;
    return series.name + ": " + text::short_number(point.y, kDigits) + " at " +
           (plot_.x_label.empty() ? "" : plot_.x_label + " ") +
           text::short_number(point.x, kDigits);
  }

  const LinePlot& plot_;
  const Legend legend_;
  Axis x_, y_;
  bool empty_ = false;
  double left_ = 0.0, right_ = 0.0, top_ = 0.0, bottom_ = 0.0;
};

}  // namespace

std::string svg(const LinePlot& plot) { return Drawing(plot).draw(); }

}  // namespace pareprop::draw
