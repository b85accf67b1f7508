#include "pareprop/trace/lane_picture.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "pareprop/draw/axis.h"
#include "pareprop/text/fixed.h"

namespace pareprop {
namespace {

constexpr int kNarrowest = 40;
constexpr int kIdle = -1;
// With fewer columns a task, bars and labels would be most of the picture: then a task is its
// letter and its fill.
constexpr double kLeastForBars = 3.5;

struct Strokes {
  std::string_view bar, recover, gradient, weight_gradient, update, axis, tick;

  std::string_view fill(TaskKind kind) const {
    switch (kind) {
      case TaskKind::recover:
        return recover;
      case TaskKind::gradient:
        return gradient;
      case TaskKind::weight_gradient:
        return weight_gradient;
      case TaskKind::update:
        return update;
    }
    return " ";
  }
};

constexpr Strokes kAscii = {"|", ".", "=", "~", "*", "-", "+"};
constexpr Strokes kUnicode = {"│", "░", "▓", "▒", "█", "─", "┴"};

std::string_view color(TaskKind kind) {
  switch (kind) {
    case TaskKind::recover:
      return "\x1b[36m";
    case TaskKind::gradient:
      return "\x1b[33m";
    case TaskKind::weight_gradient:
      return "\x1b[32m";
    case TaskKind::update:
      return "\x1b[35m";
  }
  return "";
}

std::string repeat(std::string_view piece, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += piece;
  return out;
}

class Picture {
 public:
  Picture(const TaskGraph& graph, const Timeline& timeline, int width,
          const PictureOptions& options)
      : graph_(graph),
        timeline_(timeline),
        options_(options),
        strokes_(options.unicode ? kUnicode : kAscii),
        width_(width),
        lanes_(std::max(graph.lanes(), timeline.lanes())),
        margin_(static_cast<int>(lane_title(lanes_ - 1).size()) + 1),
        columns_(width - margin_ - 1),  // one more for the bar that closes a row
        makespan_(timeline.makespan()),
        bars_(columns_per_task() >= kLeastForBars) {}

  std::string draw() const {
    std::string out;
    for (int lane = 0; lane < lanes_; ++lane) out += draw_lane(lane) + "\n";
    return out + draw_axis() + draw_legend() + draw_figures();
  }

 private:
  static std::string lane_title(int lane) { return "lane " + std::to_string(lane); }

  double columns_per_task() const {
    if (timeline_.spans.empty() || makespan_ <= 0.0) return 0.0;
    double busy = 0.0;
    for (const Span& span : timeline_.spans) busy += span.length();
    return busy / makespan_ * columns_ / static_cast<double>(timeline_.spans.size());
  }

  double column_of(double time) const {
    return makespan_ > 0.0 ? (time - timeline_.begin()) / makespan_ * columns_ : 0.0;
  }

  // The task that a column shows: the one that fills most of it, unless it was idle for longer.
  std::vector<int> shown_tasks(int lane) const {
    const auto size = static_cast<std::size_t>(columns_);
    std::vector<int> shown(size, kIdle);
    std::vector<double> most(size, 0.0), busy(size, 0.0);
    for (const Span& span : timeline_.spans) {
      if (span.lane != lane) continue;
      const double begin = column_of(span.begin), end = column_of(span.end);
      for (int c = static_cast<int>(begin); c < columns_ && c < end; ++c) {
        const auto at = static_cast<std::size_t>(c);
        const double share = std::min(end, c + 1.0) - std::max<double>(begin, c);
        busy[at] += share;
        if (share > most[at]) {
          most[at] = share;
          shown[at] = span.task;
        }
      }
    }
    for (std::size_t c = 0; c < size; ++c) {
      if (busy[c] < 0.5) shown[c] = kIdle;
    }
    return shown;
  }

  std::string draw_lane(int lane) const {
    std::string out = lane_title(lane);
    out.resize(static_cast<std::size_t>(margin_), ' ');
    const std::vector<int> shown = shown_tasks(lane);
    bool open = false;  // a bar is due where the task before ends
    for (int c = 0; c < columns_;) {
      const int task = shown[static_cast<std::size_t>(c)];
      int length = 1;
      while (c + length < columns_ && shown[static_cast<std::size_t>(c + length)] == task) ++length;
      c += length;
      if (task != kIdle) {
        out += draw_task(graph_[task], length);
      } else if (open && length > 1) {
        out += std::string(strokes_.bar) + repeat(" ", length - 1);
      } else {
        out += repeat(" ", length);
      }
      open = bars_ && task != kIdle && length > 1;
    }
    if (open) out += strokes_.bar;
    return out.substr(0, out.find_last_not_of(' ') + 1);
  }

  std::string draw_task(const Task& task, int length) const {
    std::string words = pareprop::short_label(task);
    const int room = bars_ && length > 1 ? length - 1 : length;
    if (static_cast<int>(words.size()) > room) words.erase(1, 1);
    if (static_cast<int>(words.size()) > room || !bars_) words.resize(1);
    return paint(task.kind,
                 std::string(room < length ? strokes_.bar : "") + words +
                     repeat(strokes_.fill(task.kind), room - static_cast<int>(words.size())));
  }

  std::string paint(TaskKind kind, const std::string& words) const {
    return options_.color ? std::string(color(kind)) + words + "\x1b[0m" : words;
  }

  std::string draw_axis() const {
    constexpr int kColumnsPerTick = 12;
    const double length = makespan_ * 1e3;
    if (length <= 0.0) return "";
    const double step = draw::tick_step(length, std::max(1, columns_ / kColumnsPerTick));
    std::string line, numbers(static_cast<std::size_t>(margin_), ' ');
    int drawn = 0, last_number = 2;  // the unit is written there
    for (int i = 0; i * step <= length * (1.0 + 1e-9); ++i) {
      const int column =
          std::min(static_cast<int>(std::lround(i * step / length * columns_)), columns_);
      line += repeat(strokes_.axis, column - drawn) + std::string(strokes_.tick);
      drawn = column + 1;
      const std::string number = text::fixed(i * step, draw::tick_decimals(step));
      const int half = static_cast<int>(number.size()) / 2;
      const int from = std::min(margin_ + column - half, width_ - static_cast<int>(number.size()));
      if (from <= last_number) continue;
      numbers.resize(static_cast<std::size_t>(from), ' ');
      numbers += number;
      last_number = static_cast<int>(numbers.size());
    }
    line += repeat(strokes_.axis, columns_ + 1 - drawn);
    // The unit goes into the margin, where there is always room.
    numbers.replace(0, 2, "ms");
    return std::string(static_cast<std::size_t>(margin_), ' ') + line + "\n" + numbers + "\n";
  }

  // An entry of the lines under the axis, and how many columns it takes.
  struct Entry {
    std::string words;
    int columns;
  };

  std::string wrap(const std::vector<Entry>& entries) const {
    constexpr int kGap = 3;
    std::string out;
    int used = 0;
    for (const Entry& entry : entries) {
      if (used > 0 && used + kGap + entry.columns > width_) {
        out += "\n";
        used = 0;
      }
      if (used > 0) out += std::string(kGap, ' ');
      out += entry.words;
      used += (used > 0 ? kGap : 0) + entry.columns;
    }
    return out + "\n";
  }

  std::string draw_legend() const {
    const auto& tasks = graph_.tasks();
    std::vector<Entry> entries;
    for (TaskKind kind :
         {TaskKind::recover, TaskKind::gradient, TaskKind::weight_gradient, TaskKind::update}) {
      if (std::none_of(tasks.begin(), tasks.end(),
                       [&](const Task& task) { return task.kind == kind; })) {
        continue;
      }
      const std::string sample = pareprop::letter(kind) + repeat(strokes_.fill(kind), 2);
      const std::string words = " " + std::string(name(kind));
      entries.push_back({paint(kind, sample) + words, 3 + static_cast<int>(words.size())});
    }
    if (std::any_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.stack != 0; })) {
      entries.push_back({"' stack below", 13});
    }
    return entries.empty() ? "" : wrap(entries);
  }

  std::string draw_figures() const {
    std::vector<Entry> entries;
    auto add = [&](std::string words) {
      const auto columns = static_cast<int>(words.size());
      entries.push_back({std::move(words), columns});
    };
    add("total " + text::fixed(makespan_ * 1e3, 2) + " ms");
    for (int lane = 0; lane < lanes_; ++lane) {
      const double share = makespan_ > 0.0 ? timeline_.busy(lane) / makespan_ : 0.0;
      add(lane_title(lane) + " busy " + text::fixed(100.0 * share, 0) + "%");
    }
    add("overlapped " + text::fixed(overlapped(graph_, timeline_) * 1e3, 2) + " ms");
    return wrap(entries);
  }

  const TaskGraph& graph_;
  const Timeline& timeline_;
  const PictureOptions& options_;
  const Strokes& strokes_;
  const int width_;
  const int lanes_;
  const int margin_;
  const int columns_;
  const double makespan_;
  const bool bars_;
};

}  // namespace

std::string lane_picture(const TaskGraph& graph, const Timeline& timeline, int width,
                         const PictureOptions& options) {
  if (width < kNarrowest) {
    throw std::invalid_argument("lane picture: a width of " + std::to_string(width) +
                                " columns is too narrow: expected " + std::to_string(kNarrowest) +
                                " or more");
  }
  check_timeline(graph, timeline);
  return Picture(graph, timeline, width, options).draw();
}

}  // namespace pareprop
