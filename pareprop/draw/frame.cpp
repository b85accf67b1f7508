#include "pareprop/draw/frame.h"

#include "pareprop/draw/svg.h"

namespace pareprop::draw {
namespace {

constexpr std::size_t kColours = 6;

// Media queries come last, so that they win; readers that know none get the light colours.
constexpr std::string_view kStyle = R"(<style>
  .plot { max-width: 100%; height: auto; }
  .plot text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #1f2328; }
  .plot text.title { font-weight: 600; font-size: 15px; }
  .plot text.quiet { fill: #59636e; font-size: 12px; }
  .plot .paper { fill: #ffffff; }
  .plot .grid { stroke: #d8dee4; stroke-width: 1; }
  .plot .axis { stroke: #818b98; stroke-width: 1; }
  .plot .c0 { color: #0072b2; }
  .plot .c1 { color: #d55e00; }
  .plot .c2 { color: #009e73; }
  .plot .c3 { color: #aa4499; }
  .plot .c4 { color: #b8860b; }
  .plot .c5 { color: #56b4e9; }
  .plot .curve { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
  .plot .dense { stroke-width: 1.2; }
  .plot .dashed { stroke-dasharray: 6 4; }
  .plot .dot { fill: currentColor; }
  .plot .hover { fill: transparent; }
  .plot .bar { fill: currentColor; }
  @media (prefers-color-scheme: dark) {
    .plot text { fill: #e6edf3; }
    .plot text.quiet { fill: #9198a1; }
    .plot .paper { fill: #0d1117; }
    .plot .grid { stroke: #2a313c; }
    .plot .axis { stroke: #656c76; }
    .plot .c0 { color: #4aa8e0; }
    .plot .c1 { color: #ff8b3d; }
    .plot .c2 { color: #2fc99b; }
    .plot .c3 { color: #e08ad0; }
    .plot .c4 { color: #e6b93c; }
    .plot .c5 { color: #a5d8f5; }
  }
</style>
)";

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }

}  // namespace

std::string begin(double height, std::string_view title) {
  return svg::open(kWidth, height, "plot", title) + std::string(kStyle) +
         svg::rect("paper", 0, 0, kWidth, height) +
         svg::words(kMargin, 20, shortened(title, kWidth - 2 * kMargin), "title");
}

std::string colour(std::size_t i) { return "c" + std::to_string(i % kColours); }

double width_of(std::string_view words) {
  double width = 0.0;
  for (char c : words) width += begins_character(c) ? kLetter : 0.0;
  return width;
}

std::string shortened(std::string_view words, double pixels) {
  if (width_of(words) <= pixels) return std::string(words);
  std::string out;
  double width = 2 * kLetter;
  for (char c : words) {
    if (begins_character(c) && (width += kLetter) > pixels) break;
    out += c;
  }
  return out + "\u2026";
}

Legend legend(const std::vector<LegendEntry>& entries, double top) {
  constexpr double kRow = 18, kSwatch = 18, kGap = 6, kBetween = 16;
  Legend out;
  double x = kMargin, y = top;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const LegendEntry& entry = entries[i];
    const std::string shown = shortened(entry.name, kWidth - 2 * kMargin - kSwatch - kGap);
    const double width = kSwatch + kGap + width_of(shown);
    if (x > kMargin && x + width > kWidth - kMargin) {
      x = kMargin;
      y += kRow;
    }
    const std::string classes = colour(i) + (entry.dashed ? " dashed" : "");
    out.elements += entry.line ? svg::line("curve " + classes, x, y + 9, x + kSwatch, y + 9)
                               : svg::rect("bar " + classes, x + 3, y + 3, kSwatch - 6, 12);
    out.elements += svg::words(x + kSwatch + kGap, y + 13, shown, "word");
    x += width + kBetween;
  }
  out.height = entries.empty() ? 0.0 : y + kRow - top;
  return out;
}

}  // namespace pareprop::draw
