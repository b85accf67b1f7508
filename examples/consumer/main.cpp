// The backward pass of a reversible stack as data: build it, check it, print it.

#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pareprop/graph/keep_plan.h"
#include "pareprop/graph/policy.h"
#include "pareprop/graph/schedule.h"

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("the schedule is wrong: " + what);
}

void check(const pareprop::TaskGraph& graph, int branches) {
  using pareprop::TaskKind;
  require(graph.lanes() == 2, "expected two lanes, got " + std::to_string(graph.lanes()));
  for (int k = 0; k < branches; ++k) {
    const int gradient = graph.find(TaskKind::gradient, k);
    const int recover = graph.find(TaskKind::recover, k);
    require(gradient >= 0, "branch " + std::to_string(k) + " has no gradient");
    require(recover >= 0, "branch " + std::to_string(k) + " is not recovered");
    require(graph.ancestors(gradient)[static_cast<std::size_t>(recover)],
            label(graph[gradient]) + " does not wait for " + label(graph[recover]));
  }
}

}  // namespace

int main() {
  try {
    constexpr int kBlocks = 3;
    const std::vector<pareprop::Policy> policies(kBlocks, pareprop::Policy::reverse);
    const pareprop::TaskGraph graph =
        pareprop::backward_schedule(pareprop::keep_plan(policies), {.overlap = true});
    check(graph, 2 * kBlocks);
    for (const pareprop::Task& task : graph.tasks()) {
      std::cout << "lane " << task.lane << ": " << label(task) << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "consumer: " << error.what() << '\n';
    return 1;
  }
}
