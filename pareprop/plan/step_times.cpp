#include "pareprop/plan/step_times.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "pareprop/graph/timeline.h"

namespace pareprop::plan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Backward passes of one step.
struct TimedStep {
  // Of each stack with blocks, the last one first.
  std::vector<double> makespans, recoveries, gradients_in_lanes;
  double all = 0.0;

  double rest() const {
    double rest = all;
    for (const double makespan : makespans) rest -= makespan;
    return std::max(rest, 0.0);
  }
};

TimedStep timed_step(models::Model& model, const models::Batch& batch, StackOptions options) {
  TimedStep step;
  options.on_trace = [&step](const TaskGraph& graph, const Timeline& timeline) {
    std::array<double, 3> sums{};  // by kind
    for (const Span& span : timeline.spans) {
      sums[static_cast<std::size_t>(graph[span.task].kind)] += span.length();
    }
    const auto [recovery, gradient, weight_gradient] = sums;
    step.makespans.push_back(timeline.makespan());
    step.recoveries.push_back(recovery);
    // Gradients are a chain on one lane; weight gradients fill the other, then both.
    step.gradients_in_lanes.push_back(std::max(gradient, (gradient + weight_gradient) / 2));
  };
  model.set_stack_options(options);
  const auto begin = Clock::now();
  model.loss(batch, {.pass = std::make_shared<Pass>(0, 0)}).backward();
  step.all = seconds_since(begin);
  for (auto& weight : model.parameters()) weight.mutable_grad().reset();
  options.on_trace = nullptr;  // it would outlive what it writes to
  model.set_stack_options(std::move(options));
  return step;
}

TimedStep fastest_step(models::Model& model, const models::Batch& batch,
                       const StackOptions& options) {
  constexpr int kSteps = 3;  // the first one warms up
  TimedStep fastest;
  for (int i = 0; i < kSteps; ++i) {
    TimedStep step = timed_step(model, batch, options);
    if (i == 0 || step.all < fastest.all) fastest = std::move(step);
  }
  return fastest;
}

}  // namespace

StepTimes measure_step_times(models::Model& model, const models::Batch& batch, StackOptions options,
                             bool overlapped) {
  model.train();
  options.keep_tail = false;
  options.mode = Mode::reprop;
  const TimedStep serial = fastest_step(model, batch, options);
  options.mode = Mode::pareprop;
  const TimedStep lanes = overlapped ? fastest_step(model, batch, options) : TimedStep{};
  StepTimes times{.stacks = {}, .rest = serial.rest()};
  std::size_t at = serial.makespans.size();  // of the network's first stack: the last to run back
  for (const Stack& stack : model.stacks()) {
    StackTimes own;
    if (stack->depth() > 0) {
      --at;
      own.recover = serial.recoveries[at] / stack->depth();
      own.gradient = serial.makespans[at] / stack->depth() - own.recover;
      if (overlapped) {
        own.overlapped = lanes.makespans[at] / stack->depth();
        own.gradient_in_lanes = lanes.gradients_in_lanes[at] / stack->depth();
      }
    }
    times.stacks.push_back(own);
  }
  return times;
}

void set_seconds(Profile& profile, const StepTimes& times, double measured_rest) {
  profile.seconds *= times.rest / measured_rest;
  for (std::size_t s = 0; s < profile.stacks.size(); ++s) {
    StackProfile& stack = profile.stacks[s];
    const StackTimes& own = times.stacks.at(s);
    const double none = cost_of(stack.serial, Policy::store).seconds;
    const double all = cost_of(stack.serial, Policy::reverse).seconds - none;
    const double in_lanes = own.gradient_in_lanes > 0.0 ? own.gradient_in_lanes : own.gradient;
    const double beside = own.overlapped > 0.0 ? own.overlapped - in_lanes : own.recover;
    for (std::size_t p = 0; p < kPolicies.size(); ++p) {
      const double share = all > 0.0 ? (stack.serial[p].seconds - none) / all : 0.0;
      stack.serial[p].seconds = own.gradient + share * own.recover;
      stack.overlapped[p].seconds = in_lanes + share * beside;
    }
  }
}

void set_seconds(Profile& profile, double macs_per_second) {
  profile.seconds /= macs_per_second;
  for (StackProfile& stack : profile.stacks) {
    for (PolicyCosts* costs : {&stack.serial, &stack.overlapped}) {
      for (BlockCost& cost : *costs) cost.seconds /= macs_per_second;
    }
  }
}

double measure_macs_per_second() {
  constexpr std::int64_t kSide = 512;
  constexpr double kSeconds = 0.1;
  c10::AutoGradMode no_graph(false);
  const at::Tensor a = at::ones({kSide, kSide});
  at::mm(a, a);
  double best = std::numeric_limits<double>::infinity();
  for (const auto begin = Clock::now(); seconds_since(begin) < kSeconds;) {
    const auto one = Clock::now();
    at::mm(a, a);
    best = std::min(best, seconds_since(one));
  }
  return static_cast<double>(kSide * kSide * kSide) / best;
}

}  // namespace pareprop::plan
