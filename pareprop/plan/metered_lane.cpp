#include "pareprop/plan/metered_lane.h"

#include <utility>

#include "pareprop/memory/meter.h"
#include "pareprop/models/cost.h"

namespace pareprop::plan {

void MeteredLane::begin() {
  runs_.clear();
  memory::reset_peaks();
}

std::int64_t MeteredLane::peak_since_last_run() const { return memory::usage().total_peak; }

void MeteredLane::run(const TaskGraph& graph, const TaskBody& body, Observer*) {
  MeteredRun run{.above = memory::usage().total_peak, .tasks = {}};
  for (const Task& task : graph.tasks()) {
    memory::reset_peaks();
    MeteredTask metered{.task = task, .before = memory::usage().total_live};
    const models::MacCounter counter;
    body(task);
    metered.macs = counter.macs();
    metered.peak = memory::usage().total_peak;
    run.tasks.push_back(std::move(metered));
  }
  memory::reset_peaks();
  runs_.push_back(std::move(run));
}

}  // namespace pareprop::plan
