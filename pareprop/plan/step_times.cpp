#include "pareprop/plan/step_times.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "pareprop/device/moment.h"
#include "pareprop/graph/timeline.h"
#include "pareprop/plan/lane_time.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/reversible/taken_gradients.h"
#include "pareprop/reversible/torch_lanes.h"

namespace pareprop::plan {
namespace {

// What was seen of the backward pass of a stack. Those whose blocks have nothing to train, with
// nothing to train below, have none.
struct SeenStack {
  double makespan = 0.0;
  LaneTimes sums;  // of all its tasks, by kind

  void add(TaskKind kind, double seconds) {
    (kind == TaskKind::recover    ? sums.recover
     : kind == TaskKind::gradient ? sums.gradient
                                  : sums.weight_gradient) += seconds;
  }
};

struct SeenStep {
  std::vector<SeenStack> stacks;  // the last one of the network first
  double all = 0.0;               // seconds of the step

  double rest() const {
    double rest = all;
    for (const SeenStack& stack : stacks) rest -= stack.makespan;
    return std::max(rest, 0.0);
  }
};

// Gradients as those that earlier steps left.
void make_gradients(Network& network) {
  for (at::Tensor& weight : network.weights()) {
    if (weight.requires_grad() && !weight.grad().defined()) {
      weight.mutable_grad() = at::zeros_like(weight);
    }
  }
}

SeenStep timed_step(Network& network, const StepSize& size) {
  std::shared_ptr<GradientTaker> taker;
  if (size.drops_gradients) {
    drop_gradients(network);
    taker = std::make_shared<TakenGradients>(network, [](const BlockGradients&) {});
  } else if (size.adds) {
    make_gradients(network);
    taker = std::make_shared<AddedGradients>(network);
  } else {
    drop_gradients(network);
  }
  SeenStep step;
  SeenStack below;  // what was recovered of it in advance
  std::vector<Watch> watches;
  for (const Stack& stack : network.stacks()) {
    watches.push_back(
        stack->watch({.on_backward = [&](const TaskGraph& graph, const Timeline& timeline) {
          SeenStack& seen = step.stacks.emplace_back(std::exchange(below, {}));
          seen.makespan = timeline.makespan();
          for (const Span& span : timeline.spans) {
            const Task& task = graph[span.task];
            (task.stack == 0 ? seen : below).add(task.kind, span.length());
          }
        }}));
  }
  const c10::Device device = device_of(network);
  const Moment begin(device);
  network.step(size.samples, std::make_shared<Pass>(0, 0, nullptr, std::move(taker)));
  step.all = Moment(device).ms_since(begin) / 1e3;
  return step;
}

void keep_faster(SeenStep& fastest, SeenStep step) {
  if (fastest.stacks.empty() || step.all < fastest.all) fastest = std::move(step);
}

}  // namespace

StepTimes scaled(StepTimes times, double factor) {
  times.rest *= factor;
  for (StackTimes& stack : times.stacks) {
    for (double* const seconds :
         {&stack.recover, &stack.gradient, &stack.overlapped, &stack.in_lanes.recover,
          &stack.in_lanes.gradient, &stack.in_lanes.weight_gradient}) {
      *seconds *= factor;
    }
  }
  return times;
}

namespace {

// Gradients are a chain on one lane; weight gradients fill the other, then both.
double stored_in_lanes(const LaneTimes& lanes) {
  return std::max(lanes.gradient, (lanes.gradient + lanes.weight_gradient) / 2);
}

}  // namespace

Seconds least_seconds(const StepTimes& times, const std::vector<int>& depths) {
  double sum = times.rest;
  for (std::size_t s = 0; s < times.stacks.size(); ++s) {
    const StackTimes& own = times.stacks[s];
    double block = own.gradient;
    if (own.overlapped > 0.0) block = std::min(block, own.overlapped);
    if (own.in_lanes.known()) block = std::min(block, stored_in_lanes(own.in_lanes));
    sum += depths.at(s) * block;
  }
  return {sum};
}

namespace {

// The fastest steps of one size.
struct SeenSize {
  SeenStep serial, lanes;

  StepTimes times(const Network& network) const {
    StepTimes times{.stacks = {}, .rest = serial.rest()};
    const auto& stacks = network.stacks();
    std::size_t at = 0;  // from the network's last stack on
    times.stacks.resize(stacks.size());
    for (std::size_t s = stacks.size(); s-- > 0;) {
      StackTimes& own = times.stacks[s];
      const int depth = stacks[s]->depth();
      if (depth == 0 || at == serial.stacks.size()) continue;
      own.recover = serial.stacks[at].sums.recover / depth;
      own.gradient = serial.stacks[at].makespan / depth - own.recover;
      const std::size_t seen = at++;
      if (lanes.stacks.empty()) continue;
      const auto& [recover, gradient, weight_gradient] = lanes.stacks[seen].sums;
      own.overlapped = lanes.stacks[seen].makespan / depth;
      own.in_lanes = {recover / depth, gradient / depth, weight_gradient / depth};
    }
    return times;
  }
};

}  // namespace

SizeTimes measure_step_times(Network& network, const std::vector<StepSize>& sizes,
                             const std::function<void(int, int)>& on_step) {
  const NetworkRestored restored(network);
  // Threads stay between steps, or they would never be warm.
  const auto plan_without_tail = [&](bool overlap) {
    StepPlan plan = network.recomputing_plan(overlap);
    plan.recompute_between = false;
    for (StackPlan& stack : plan.stacks) stack.tail = 0;
    return plan;
  };
  std::vector<SeenSize> seen(sizes.size());
  constexpr int kRounds = 4;  // the first of each warms up
  int all = 0, done = 0;
  for (const StepSize& size : sizes) all += (size.overlapped ? 2 : 1) * kRounds;
  const auto step = [&](const StepSize& size, bool overlap) {
    if (on_step) on_step(done++, all);
    network.set_plan(plan_without_tail(overlap));
    return timed_step(network, size);
  };
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      keep_faster(seen[i].serial, step(sizes[i], false));
      if (sizes[i].overlapped) keep_faster(seen[i].lanes, step(sizes[i], true));
    }
  }
  drop_gradients(network);
  SizeTimes times;
  for (std::size_t i = 0; i < sizes.size(); ++i) times[sizes[i]] = seen[i].times(network);
  return times;
}

StepTimes measure_step_times(Network& network, std::int64_t samples, bool overlapped,
                             const std::function<void(int, int)>& on_step) {
  const StepSize size{.samples = samples, .overlapped = overlapped};
  return measure_step_times(network, std::vector{size}, on_step).at(size);
}

namespace {

// So that the schedule of a stack that recovers everything takes what was measured of it.
LaneTimes fitted(const StackProfile& stack, const StackTimes& own) {
  if (!own.in_lanes.known()) return {};
  StackProfile as_seen = stack;
  as_seen.in_lanes = own.in_lanes;
  const std::vector<Policy> leanest(stack.live.size(), leanest_policy(stack.coupling));
  const double factor =
      own.overlapped * (stack.depth() - stack.first) / seconds_in_lanes(as_seen, leanest).count;
  return {own.in_lanes.recover * factor, own.in_lanes.gradient * factor,
          own.in_lanes.weight_gradient * factor};
}

// The same bytes, with costs still to be filled in.
StackProfile bytes_of(const StackProfileIn<Macs>& work) {
  StackProfile stack{.coupling = work.coupling,
                     .first = work.first,
                     .serial = {},
                     .overlapped = {},
                     .live = work.live,
                     .edge = work.edge,
                     .above = work.above};
  for (std::size_t p = 0; p < kPolicies.size(); ++p) {
    stack.serial[p] = {.kept = work.serial[p].kept, .extra = work.serial[p].extra};
    stack.overlapped[p] = {.kept = work.overlapped[p].kept, .extra = work.overlapped[p].extra};
  }
  return stack;
}

// Times are means over all blocks, those that the backward pass does not come to included.
StackTimes of_blocks_that_run(const StackTimes& mean, const StackProfileIn<Macs>& work) {
  if (work.first == 0) return mean;
  const int run = std::max(1, work.depth() - work.first);
  return scaled({.stacks = {mean}}, static_cast<double>(work.depth()) / run).stacks.front();
}

StackProfile timed(const StackProfileIn<Macs>& work, const StackTimes& mean) {
  const StackTimes own = of_blocks_that_run(mean, work);
  StackProfile stack = bytes_of(work);
  const Macs none = cost_of(work.serial, Policy::store).cost;
  const Macs all = work.recomputation();
  std::array<double, kPolicies.size()> shares{};  // of the recomputation
  for (std::size_t p = 0; p < shares.size(); ++p) {
    if (all > Macs{}) shares[p] = (work.serial[p].cost - none) / all;
    stack.serial[p].cost = {own.gradient + shares[p] * own.recover};
  }
  stack.in_lanes = fitted(stack, own);
  const LaneTimes& lanes = stack.in_lanes;
  const double stored = lanes.known() ? stored_in_lanes(lanes) : own.gradient;
  const double beside = own.overlapped > 0.0 ? own.overlapped - stored : own.recover;
  // What a lean tape computes again is part of its gradient.
  const double within = lanes.known() ? lanes.recover : own.recover;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    const double again = kPolicies[p] == Policy::products ? within : beside;
    stack.overlapped[p].cost = {stored + shares[p] * again};
  }
  return stack;
}

}  // namespace

Profile timed(const WorkProfile& work, const StepTimes& times, Macs measured_rest) {
  Profile profile{
      .stacks = {}, .below = work.below, .rest = {work.rest / measured_rest * times.rest}};
  for (std::size_t s = 0; s < work.stacks.size(); ++s) {
    profile.stacks.push_back(timed(work.stacks[s], times.stacks.at(s)));
  }
  return profile;
}

Profile timed(const WorkProfile& work, MacsPerSecond rate) {
  Profile profile{.stacks = {}, .below = work.below, .rest = work.rest / rate};
  for (const StackProfileIn<Macs>& own : work.stacks) {
    StackProfile& stack = profile.stacks.emplace_back(bytes_of(own));
    for (std::size_t p = 0; p < kPolicies.size(); ++p) {
      stack.serial[p].cost = own.serial[p].cost / rate;
      stack.overlapped[p].cost = own.overlapped[p].cost / rate;
    }
  }
  return profile;
}

double fastest_of(const std::function<double()>& once, const std::function<void()>& pause,
                  const Spells& spells) {
  double least = std::numeric_limits<double>::infinity();
  for (int spell = 0; spell < spells.count; ++spell) {
    if (spell > 0) pause();
    double sum = 0.0;
    do {
      const double seconds = once();
      sum += seconds;
      least = std::min(least, seconds);
    } while (sum < spells.seconds);
  }
  return least;
}

MacsPerSecond measure_macs_per_second(c10::Device device) {
  constexpr auto kPause = std::chrono::milliseconds(60);
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, double> known;  // by device and threads
  const std::lock_guard lock(mutex);
  double& macs = known[{device.str(), at::get_num_threads()}];
  if (macs > 0.0) return {macs};
  c10::AutoGradMode no_graph(false);
  at::Tensor a;
  const auto product = [&] {
    const Moment begin(device);
    at::mm(a, a);
    return Moment(device).ms_since(begin) / 1e3;
  };
  const auto make = [&](std::int64_t side) {
    a = at::ones({side, side}, at::device(device));
    at::mm(a, a);
  };
  std::int64_t side = 512;
  make(side);
  if (!device.is_cpu()) {
    // Large enough to fill the device, and not to be hidden by its launch.
    constexpr std::int64_t kLargest = 8192;
    constexpr double kLong = 1e-3;
    while (side < kLargest && product() < kLong) make(side *= 2);
  }
  const double least = fastest_of(product, [&] { std::this_thread::sleep_for(kPause); });
  macs = static_cast<double>(side * side * side) / least;
  return {macs};
}

}  // namespace pareprop::plan
