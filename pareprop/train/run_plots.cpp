#include "pareprop/train/run_plots.h"

#include <algorithm>
#include <array>

#include "pareprop/draw/bar_plot.h"
#include "pareprop/draw/line_plot.h"
#include "pareprop/text/units.h"

namespace pareprop::train {
namespace {

template <typename Record, typename Value>
draw::Series series_of(std::string name, const std::vector<Record>& records, Value value) {
  draw::Series series{.name = std::move(name)};
  for (const Record& record : records) {
    series.points.push_back({static_cast<double>(record.step), value(record)});
  }
  return series;
}

draw::LinePlot over_steps(std::string title, std::vector<draw::Series> series) {
  return {
      .title = std::move(title), .x_label = "step", .series = std::move(series), .whole_x = true};
}

// Of training, and of the evaluations with their own few points.
template <typename Value>
std::string both(const TrainResult& result, const std::string& title, Value value) {
  draw::Series evaluation = series_of("validation", result.evaluations, value);
  evaluation.markers = true;
  return svg(
      over_steps(title, {series_of("training", result.steps, value), std::move(evaluation)}));
}

template <typename Value>
std::string from_zero(const TrainResult& result, const std::string& title, Value value) {
  draw::LinePlot plot = over_steps(title, {series_of(title, result.steps, value)});
  plot.y_from_zero = true;
  return svg(plot);
}

std::string peak_memory(const TrainResult& result) {
  struct Unit {
    double bytes;
    const char* name;
  };
  static constexpr std::array kUnits = {Unit{1024.0 * 1024.0 * 1024.0, "GiB"},
                                        Unit{1024.0 * 1024.0, "MiB"}, Unit{1024.0, "KiB"},
                                        Unit{1.0, "B"}};
  std::int64_t most = 0;
  for (const StepRecord& record : result.steps) most = std::max(most, record.peak_bytes);
  const auto unit = std::find_if(kUnits.begin(), kUnits.end() - 1, [&](const Unit& candidate) {
    return static_cast<double>(most) >= candidate.bytes;
  });
  return from_zero(result, std::string("Peak memory, ") + unit->name,
                   [unit](const StepRecord& record) {
                     return static_cast<double>(record.peak_bytes) / unit->bytes;
                   });
}

std::string memory_by_tag(const memory::Usage& usage) {
  draw::BarPlot bars{.title = "Memory by use, the peak of each", .value_text = text::bytes_text};
  for (std::size_t tag = 0; usage.total_peak > 0 && tag < memory::kTags; ++tag) {
    bars.bars.push_back({.label = std::string(name(static_cast<memory::Tag>(tag))),
                         .parts = {static_cast<double>(usage.peak[tag])}});
  }
  return svg(bars);
}

}  // namespace

std::vector<std::string> run_plots(const TrainResult& result) {
  return {both(result, "Loss", [](const auto& record) { return record.loss; }),
          both(result, "Accuracy, %", [](const auto& record) { return 100.0 * record.accuracy; }),
          from_zero(result, "Learning rate",
                    [](const StepRecord& record) { return record.learning_rate; }),
          from_zero(result, "Samples a second",
                    [](const StepRecord& record) { return record.samples_per_s; }),
          peak_memory(result),
          memory_by_tag(result.memory)};
}

}  // namespace pareprop::train
