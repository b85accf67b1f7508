// What lanes cost by themselves: building a schedule, and running empty tasks.

#include <benchmark/benchmark.h>

#include "pareprop/graph/schedule.h"
#include "pareprop/lanes/cpu_lanes.h"
#include "pareprop/lanes/serial_lane.h"

namespace pareprop {
namespace {

KeepPlan reversed(int depth) {
  return keep_plan(std::vector<Policy>(static_cast<std::size_t>(depth), Policy::reverse));
}

void build_schedule(benchmark::State& state) {
  const KeepPlan plan = reversed(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(backward_schedule(plan, {.overlap = true, .deferred = 1}));
  }
}
BENCHMARK(build_schedule)->Arg(12)->Arg(48);

template <typename Lanes>
void run_empty_tasks(benchmark::State& state) {
  Lanes lanes;
  const TaskGraph graph = backward_schedule(reversed(12), {.overlap = lanes.lanes() > 1});
  for (auto _ : state) lanes.run(graph, [](const Task&) {});
  state.SetItemsProcessed(state.iterations() * graph.size());
}
BENCHMARK(run_empty_tasks<SerialLane>);
BENCHMARK(run_empty_tasks<CpuLanes>)->UseRealTime();

}  // namespace
}  // namespace pareprop
