#include "pareprop/draw/bar_plot.h"

#include <algorithm>
#include <numeric>

#include "pareprop/draw/axis.h"
#include "pareprop/draw/frame.h"
#include "pareprop/draw/svg.h"
#include "pareprop/text/fixed.h"

namespace pareprop::draw {
namespace {

constexpr double kRow = 28, kBar = 18, kWidestLabel = 170;

double length_of(double part) { return can_show(part, /*log=*/true) ? part : 0.0; }

double sum_of(const Bar& bar) {
  return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0,
                         [](double sum, double part) { return sum + length_of(part); });
}

class Drawing {
 public:
  explicit Drawing(const BarPlot& plot)
      : plot_(plot), legend_(legend(entries(plot), kTitleBottom)) {
    double widest_label = 0.0, widest_value = 0.0;
    for (const Bar& bar : plot.bars) {
      largest_ = std::max(largest_, sum_of(bar));
      widest_label = std::max(widest_label, width_of(bar.label));
      widest_value = std::max(widest_value, width_of(value_of(sum_of(bar))));
    }
    left_ = kMargin + std::min(widest_label, kWidestLabel) + 8;
    right_ = std::max(left_ + kBar, kWidth - kMargin - widest_value - 6);
    top_ = kTitleBottom + legend_.height + 6;
  }

  std::string draw() const {
    const double rows = std::max<double>(1.0, static_cast<double>(plot_.bars.size()));
    std::string out = begin(top_ + kRow * rows + kMargin / 2, plot_.title) + legend_.elements;
    if (plot_.bars.empty()) {
      out += svg::words(kWidth / 2, top_ + kRow / 2, "no data", "quiet", "middle");
    }
    for (std::size_t i = 0; i < plot_.bars.size(); ++i) {
      out += draw_bar(plot_.bars[i], top_ + kRow * static_cast<double>(i));
    }
    return out + "</svg>\n";
  }

 private:
  static std::vector<LegendEntry> entries(const BarPlot& plot) {
    std::vector<LegendEntry> out;
    for (const std::string& name : plot.parts) out.push_back({.name = name, .line = false});
    return out;
  }

  std::string value_of(double value) const {
    constexpr int kDigits = 4;
    return plot_.value_text ? plot_.value_text(value) : text::short_number(value, kDigits);
  }

  std::string draw_bar(const Bar& bar, double y) const {
    std::string out =
        "<g>" + svg::tooltip(bar.label + ": " + value_of(sum_of(bar))) + "\n" +
        svg::words(left_ - 8, y + 14, shortened(bar.label, kWidestLabel), "word", "end");
    double x = left_;
    for (std::size_t i = 0; i < bar.parts.size(); ++i) {
      // Divided first: the sum of large values may be large beyond any number.
      const double width =
          largest_ > 0.0 ? length_of(bar.parts[i]) / largest_ * (right_ - left_) : 0.0;
      const std::string tip =
          i < plot_.parts.size()
              ? svg::tooltip(bar.label + ", " + plot_.parts[i] + ": " + value_of(bar.parts[i]))
              : "";
      out += svg::rect("bar " + colour(i), x, y, width, kBar, tip);
      x += width;
    }
    out += svg::words(x + 6, y + 14, value_of(sum_of(bar)), "word");
    return out + "</g>\n";
  }

  const BarPlot& plot_;
  const Legend legend_;
  double largest_ = 0.0;
  double left_ = 0.0, right_ = 0.0, top_ = 0.0;
};

}  // namespace

std::string svg(const BarPlot& plot) { return Drawing(plot).draw(); }

}  // namespace pareprop::draw
