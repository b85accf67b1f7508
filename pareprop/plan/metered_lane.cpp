#include "pareprop/plan/metered_lane.h"

#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/models/cost.h"

namespace pareprop::plan {

void MeteredLane::begin() {
  runs_.clear();
  memory::reset_peaks();
}

std::int64_t MeteredLane::peak_since_last_run() const {
  const memory::Usage usage = memory::usage();
  return only_activations_ ? usage.activation_peak : usage.total_peak;
}

std::int64_t MeteredLane::live() const {
  const memory::Usage usage = memory::usage();
  return only_activations_ ? usage.activation_live : usage.total_live;
}

void MeteredLane::run(const TaskGraph& graph, const TaskBody& body, Observer*) {
  MeteredRun run{.above = peak_since_last_run(), .tasks = {}};
  for (const Task& task : graph.tasks()) {
    memory::reset_peaks();
    MeteredTask metered{.task = task, .before = live()};
    const models::MacCounter counter;
    body(task);
    metered.macs = counter.macs();
    metered.peak = peak_since_last_run();
    run.tasks.push_back(std::move(metered));
  }
  memory::reset_peaks();
  runs_.push_back(std::move(run));
}

}  // namespace pareprop::plan
