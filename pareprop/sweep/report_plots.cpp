#include "pareprop/sweep/report_plots.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <set>
#include <utility>

#include "pareprop/draw/bar_plot.h"
#include "pareprop/draw/frontier.h"
#include "pareprop/draw/line_plot.h"
#include "pareprop/sweep/case_groups.h"
#include "pareprop/text/fixed.h"

namespace pareprop::sweep {
namespace {

using sweep::ResultRow;

constexpr double kMiB = 1 << 20;

double activation_mib(const ResultRow& row) {
  return static_cast<double>(row.activation_peak_bytes) / kMiB;
}

std::string id_of(const std::string& kind, const std::string& name) {
  std::string id = kind;
  bool between = true;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      between = true;
      continue;
    }
    if (std::exchange(between, false)) id += '-';
    id += c;
  }
  return id;
}

using Value = std::function<double(const ResultRow&)>;

// A line for each mode of all rows, also those that `rows` lack: a mode has one colour everywhere.
std::vector<draw::Series> lines_of(const std::vector<std::string>& modes,
                                   const std::vector<ResultRow>& rows, const Value& x,
                                   const Value& y) {
  std::vector<draw::Series> all;
  for (const std::string& mode : modes) {
    draw::Series series{.name = mode, .markers = true};
    for (const ResultRow& row : rows) {
      if (row.mode != mode || row.budget_bytes > 0 || !row.timed()) continue;
      series.points.push_back({x(row), y(row)});
    }
    std::sort(series.points.begin(), series.points.end(),
              [](const draw::Point& a, const draw::Point& b) { return a.x < b.x; });
    all.push_back(std::move(series));
  }
  return all;
}

// Whether there is anything to see along x.
bool varies(const std::vector<ResultRow>& rows, const Value& x) {
  std::set<double> values;
  for (const ResultRow& row : rows) {
    if (row.timed() && row.budget_bytes == 0) values.insert(x(row));
  }
  return values.size() > 1;
}

double batch_of(const ResultRow& row) { return static_cast<double>(row.batch); }
double depth_of(const ResultRow& row) { return row.depth; }

// A case in few letters, below the name of its family.
std::string short_name(const ResultRow& row, bool precisions, bool threads) {
  std::string out = row.model;
  if (row.case_name != without(row.case_name, "depth")) out += " d" + std::to_string(row.depth);
  out += " b" + std::to_string(row.batch);
  if (precisions) out += " " + row.precision;
  if (threads) out += " " + std::to_string(row.threads) + "t";
  return out;
}

std::string ms_text(double ms) { return text::fixed(ms, 1) + " ms"; }

Plot bars_of(const std::string& kind, const Group& one, const std::string& title,
             std::vector<std::string> parts,
             const std::function<std::vector<double>(const ResultRow&)>& values) {
  draw::BarPlot bars{.title = title, .parts = std::move(parts), .bars = {}, .value_text = ms_text};
  for (const ResultRow& row : one.rows) bars.bars.push_back({mode_text(row), values(row)});
  return {id_of(kind, one.name), svg(bars)};
}

}  // namespace

std::vector<Plot> throughput_by_batch(const std::vector<ResultRow>& rows) {
  std::vector<Plot> plots;
  const auto modes = modes_of(rows);
  const ShortNames short_names(rows);
  const auto network = [](const ResultRow& row) { return without(row.case_name, "batch"); };
  for (const Group& group : grouped(rows, network)) {
    if (!varies(group.rows, batch_of)) continue;
    const draw::LinePlot lines{
        .title = short_names(group.name),
        .x_label = "batch",
        .y_label = "samples a second",
        .series = lines_of(modes, group.rows, batch_of,
                           [](const ResultRow& row) { return row.samples_per_s; }),
        .log_x = true,
        .y_from_zero = true};
    plots.push_back({id_of("batch", group.name), svg(lines)});
  }
  return plots;
}

std::vector<Plot> gain_over_reprop(const std::vector<ResultRow>& rows) {
  std::set<std::string> precisions;
  std::set<int> threads;
  for (const ResultRow& row : rows) {
    precisions.insert(row.precision);
    threads.insert(row.threads);
  }
  std::vector<Plot> plots;
  for (const Group& family : grouped(rows, [](const ResultRow& row) { return row.family; })) {
    draw::BarPlot bars{.title = family.name + ": pareprop / reprop",
                       .bars = {},
                       .value_text = [](double value) { return text::fixed(value, 2) + "\u00D7"; }};
    for (const Group& one :
         grouped(family.rows, [](const ResultRow& row) { return row.case_name; })) {
      const ResultRow* const ours = find_mode(one.rows, "pareprop");
      const ResultRow* const theirs = find_mode(one.rows, "reprop");
      if (ours == nullptr || theirs == nullptr) continue;
      bars.bars.push_back({short_name(*ours, precisions.size() > 1, threads.size() > 1),
                           {ours->samples_per_s / theirs->samples_per_s}});
    }
    if (!bars.bars.empty()) plots.push_back({id_of("gain", family.name), svg(bars)});
  }
  return plots;
}

std::vector<Plot> throughput_by_memory(const std::vector<ResultRow>& rows) {
  std::vector<Plot> plots;
  const auto modes = modes_of(rows);
  const ShortNames short_names(rows);
  for (const Group& one : chosen_cases(rows)) {
    draw::LinePlot dots{.title = short_names(one.name),
                        .x_label = "MiB of activations",
                        .y_label = "samples a second",
                        .series = {},
                        .log_x = true,
                        .y_from_zero = true};
    std::vector<draw::Point> all;
    for (const std::string& mode : modes) {
      draw::Series series{.name = mode, .markers = true, .line = false};
      for (const ResultRow& row : one.rows) {
        if (row.mode == mode) series.points.push_back({activation_mib(row), row.samples_per_s});
      }
      all.insert(all.end(), series.points.begin(), series.points.end());
      dots.series.push_back(std::move(series));
    }
    dots.series.push_back({.name = "frontier", .points = draw::frontier(all), .dashed = true});
    plots.push_back({id_of("memory", one.name), svg(dots)});
  }
  return plots;
}

std::vector<Plot> memory_by_depth(const std::vector<ResultRow>& rows) {
  std::vector<Plot> plots;
  const auto modes = modes_of(rows);
  const ShortNames short_names(rows);
  const auto network = [](const ResultRow& row) { return without(row.case_name, "depth"); };
  for (const Group& group : grouped(rows, network)) {
    if (!varies(group.rows, depth_of)) continue;
    const draw::LinePlot lines{.title = short_names(group.name),
                               .x_label = "blocks",
                               .y_label = "MiB of activations",
                               .series = lines_of(modes, group.rows, depth_of, activation_mib),
                               .whole_x = true,
                               .y_from_zero = true};
    plots.push_back({id_of("depth", group.name), svg(lines)});
  }
  return plots;
}

std::vector<Plot> time_by_phase(const std::vector<ResultRow>& rows) {
  std::vector<Plot> plots;
  const ShortNames short_names(rows);
  for (const Group& one : chosen_cases(rows)) {
    const std::string title = short_names(one.name);
    plots.push_back(bars_of("phase", one, title, {"forward", "backward"}, [](const ResultRow& row) {
      return std::vector<double>{row.forward_ms, row.backward_ms};
    }));
    plots.push_back(bars_of(
        "busy", one, "Lanes: " + title, {"recover", "gradient", "weight gradient"},
        [](const ResultRow& row) {
          return std::vector<double>{row.recover_ms, row.gradient_ms, row.weight_gradient_ms};
        }));
  }
  return plots;
}

}  // namespace pareprop::sweep
