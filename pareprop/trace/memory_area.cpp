#include "pareprop/trace/memory_area.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "pareprop/draw/axis.h"
#include "pareprop/draw/svg.h"
#include "pareprop/text/fixed.h"
#include "pareprop/text/units.h"

namespace pareprop {

const std::string_view kMemoryLight = R"(  .m0 { fill: #c3c9d1; }
  .m1 { fill: #dcc193; }
  .m2 { fill: #e3cf6f; }
  .m3 { fill: #9fcbb8; }
  .m4 { fill: #5fa8d8; }
  .m5 { fill: #d98c86; }
)";
const std::string_view kMemoryDark = R"(    .m0 { fill: #4d5560; }
    .m1 { fill: #6f5b33; }
    .m2 { fill: #6d6118; }
    .m3 { fill: #2f6a55; }
    .m4 { fill: #23628f; }
    .m5 { fill: #7d3b37; }
)";

namespace {

constexpr std::size_t kColours = 6;

std::int64_t sum(const MemorySample& sample) {
  std::int64_t bytes = 0;
  for (const std::int64_t part : sample.bytes) bytes += part;
  return bytes;
}

std::vector<MemorySample> one_a_pixel(const StepTrace& trace, const MemoryFrame& frame) {
  std::vector<MemorySample> shown;
  double column = -1.0;
  for (const MemorySample& sample : trace.samples) {
    const double at = std::floor(frame.x(sample.time));
    if (shown.empty() || at != column) {
      shown.push_back(sample);
    } else if (sum(sample) > sum(shown.back())) {
      shown.back() = sample;
    }
    column = at;
  }
  return shown;
}

struct Unit {
  double size;
  const char* name;
};

Unit unit_for(double bytes) {
  constexpr std::array kUnits = {Unit{1024.0 * 1024 * 1024, " GiB"}, Unit{1024.0 * 1024, " MiB"},
                                 Unit{1024.0, " KiB"}};
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.size) return unit;
  }
  return {1.0, " B"};
}

std::string scale(const MemoryFrame& frame, double highest) {
  constexpr int kTicks = 4;
  const Unit unit = unit_for(highest);
  const double step = draw::tick_step(highest / unit.size, kTicks);
  std::string out;
  for (int i = 0; i * step * unit.size <= highest * (1.0 + 1e-9); ++i) {
    const double y = frame.top + frame.height * (1.0 - i * step * unit.size / highest);
    out += svg::line("grid", frame.left, y, frame.left + frame.width, y);
    out += svg::words(frame.left - 10, y + 4,
                      text::fixed(i * step, draw::tick_decimals(step)) + unit.name, "word", "end");
  }
  return out;
}

}  // namespace

std::string memory_class(std::size_t tag) { return "m" + std::to_string(tag % kColours); }

std::string memory_area(const StepTrace& trace, const MemoryFrame& frame) {
  const std::vector<MemorySample> samples = one_a_pixel(trace, frame);
  std::int64_t most = 0;
  for (const MemorySample& sample : samples) most = std::max(most, sum(sample));
  if (most <= 0) return "";
  const auto highest = static_cast<double>(most);
  const auto y = [&](std::int64_t bytes) {
    return frame.top + frame.height * (1.0 - static_cast<double>(bytes) / highest);
  };

  std::string out = scale(frame, highest);
  std::vector<std::int64_t> below(samples.size(), 0);
  for (std::size_t tag = 0; tag < trace.tags.size(); ++tag) {
    std::vector<std::int64_t> above = below;
    std::int64_t peak = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      above[i] += samples[i].bytes.at(tag);
      peak = std::max(peak, samples[i].bytes[tag]);
    }
    std::vector<std::pair<double, double>> upper, lower;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto same = [&](std::size_t other) {
        return below[other] == below[i] && above[other] == above[i];
      };
      if (i > 0 && i + 1 < samples.size() && same(i - 1) && same(i + 1)) continue;
      const double x = frame.x(samples[i].time);
      lower.emplace_back(x, y(below[i]));
      upper.emplace_back(x, y(above[i]));
    }
    below = std::move(above);
    if (peak == 0) continue;
    upper.insert(upper.end(), lower.rbegin(), lower.rend());
    out += svg::polygon(
        memory_class(tag), upper,
        svg::tooltip(trace.tags[tag] + ": at most " + text::bytes_text(static_cast<double>(peak))));
  }
  return out;
}

}  // namespace pareprop
