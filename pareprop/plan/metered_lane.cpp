#include "pareprop/plan/metered_lane.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "pareprop/graph/worst_meeting.h"
#include "pareprop/memory/meta_meter.h"
#include "pareprop/ops/mac_counter.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::plan {

std::int64_t MeteredRun::worst_meeting() const {
  std::vector<TaskBytes> bytes;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const MeteredTask& metered = tasks[i];
    const std::int64_t next = i + 1 < tasks.size() ? tasks[i + 1].before : after;
    bytes.push_back({.most = metered.peak - metered.before, .change = next - metered.before});
  }
  return tasks.empty() ? 0 : tasks.front().before + pareprop::worst_meeting(graph, bytes);
}

void MeteredLane::begin() {
  runs_.clear();
  memory::reset_peaks(memory::Counted::meta);
  peaks_ = {};
}

void MeteredLane::reset_peaks() {
  peaks_ = usage();
  memory::reset_peaks(memory::Counted::meta);
}

memory::Usage MeteredLane::usage() const {
  memory::Usage usage = memory::usage(memory::Counted::meta);
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    usage.peak[tag] = std::max(usage.peak[tag], peaks_.peak[tag]);
  }
  usage.total_peak = std::max(usage.total_peak, peaks_.total_peak);
  usage.activation_peak = std::max(usage.activation_peak, peaks_.activation_peak);
  return usage;
}

std::int64_t MeteredLane::peak_since_last_run() const {
  const memory::Usage usage = memory::usage(memory::Counted::meta);
  return only_activations_ ? usage.activation_peak : usage.total_peak;
}

std::int64_t MeteredLane::live() const {
  const memory::Usage usage = memory::usage(memory::Counted::meta);
  return only_activations_ ? usage.activation_live : usage.total_live;
}

void MeteredLane::hand_back(std::shared_ptr<const void> memory, int owner) {
  if (order_) order_->hand_back(std::move(memory), owner);
}

void MeteredLane::run(const TaskGraph& graph, const TaskBody& body, Observer*) {
  MeteredRun run{.above = peak_since_last_run(), .graph = graph, .tasks = {}};
  run_tasks(graph, body, run.tasks);
  run.after = live();
  reset_peaks();
  runs_.push_back(std::move(run));
}

void MeteredLane::run_tasks(const TaskGraph& graph, const TaskBody& body,
                            std::vector<MeteredTask>& tasks) {
  struct EndOfOrder {
    std::optional<LaneOrder>& order;
    ~EndOfOrder() { order.reset(); }
  } const end{order_};
  if (meant_.streams) order_.emplace(graph);
  // What scratch memory products take depends on it.
  const IntraOpThreads share(std::max(1, at::get_num_threads() / graph.lanes()));
  for (int id = 0; id < graph.size(); ++id) {
    const memory::MetaStreamScope stream(meant_.streams ? graph[id].lane : 0);
    reset_peaks();
    if (order_) order_->begin(id);
    MeteredTask metered{.before = live()};
    const MacCounter counter;
    body(graph[id]);
    if (order_) order_->end(id);
    metered.macs = counter.macs();
    metered.peak = peak_since_last_run();
    tasks.push_back(metered);
  }
}

}  // namespace pareprop::plan
