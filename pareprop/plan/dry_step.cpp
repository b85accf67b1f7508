#include "pareprop/plan/dry_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "pareprop/memory/meta_meter.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/mac_counter.h"
#include "pareprop/ops/meta_kernels.h"
#include "pareprop/reversible/added_gradients.h"
#include "pareprop/reversible/taken_gradients.h"

namespace pareprop::plan {
namespace {

constexpr LanesMeant kSerial{.count = 1};
constexpr int kCopies = 3;  // the stream that batches come by, after those of the lanes

// What a lean tape computes again has multiply-accumulates of attention's scores only. The rest is
// taken for this part of a block's recomputation; less was seen in every family, in times too short
// to be measured on the way.
constexpr double kBetweenProducts = 0.125;

// What one block's backward pass showed.
struct Window {
  std::int64_t before = -1, peak = 0;
  Macs recovered, gradient;
};

// A task belongs to its own block, or, with overlap, to that whose gradients have begun last:
// recoveries of lower blocks and left-over weight gradients run beside it.
std::vector<Window> windows(const MeteredRun& run, int depth, bool overlap) {
  std::vector<Window> all(static_cast<std::size_t>(depth));
  int lowest = depth - 1;
  for (int id = 0; id < run.graph.size(); ++id) {
    const Task& task = run.graph[id];
    const MeteredTask& metered = run.tasks[static_cast<std::size_t>(id)];
    const bool own = task.stack == 0;
    if (own && (!overlap || task.kind == TaskKind::gradient)) {
      lowest = std::min(lowest, task.block());
    }
    Window& window = all[static_cast<std::size_t>(lowest)];
    if (window.before < 0) window.before = metered.before;
    window.peak = std::max(window.peak, metered.peak);
    if (!own) continue;
    Window& block = all[static_cast<std::size_t>(task.block())];
    (task.kind == TaskKind::recover ? block.recovered : block.gradient) += Macs{metered.macs};
  }
  for (Window& window : all) {
    if (window.before < 0) window.before = window.peak = run.after;
  }
  return all;
}

memory::Usage minus_live(memory::Usage usage, const memory::Usage& part) {
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) usage.live[tag] -= part.live[tag];
  usage.total_live -= part.total_live;
  usage.activation_live -= part.activation_live;
  return usage;
}

// Of a block: samples of its streams, on an accelerator as many again to compare them with, and
// the extremes of exact streams and of what is added to them, each at least a piece of 512 bytes.
std::int64_t probe_bytes(const StepShape& shape) {
  if (shape.device.is_cpu()) return 512;
  return 2 * 512 * (shape.arithmetic == Arithmetic::exact ? 6 : 2);
}

// The lowest block that the backward pass came to; all of them if it came to none.
int first_block(const MeteredRun& run, int depth) {
  int first = depth;
  for (int id = 0; id < run.graph.size(); ++id) {
    if (run.graph[id].stack == 0) first = std::min(first, run.graph[id].block());
  }
  return first;
}

std::int64_t minus(std::int64_t peak, std::int64_t before) {
  return std::max<std::int64_t>(0, peak - before);
}

}  // namespace

MakeOptimizer copies_of_weights(int copies) {
  return [copies](const std::vector<at::Tensor>& weights) {
    DryOptimizer optimizer;
    for (int copy = 0; copy < copies; ++copy) {
      for (const at::Tensor& weight : weights) optimizer.state.push_back(at::empty_like(weight));
    }
    return optimizer;
  };
}

StepPlan step_plan(const Choice& choice, bool recompute_between) {
  StepPlan plan{.recompute_between = recompute_between};
  for (const auto& policies : choice.policies) {
    plan.stacks.push_back({.policies = policies, .tail = 0});
  }
  if (!plan.stacks.empty()) plan.stacks.back().tail = std::nullopt;
  // Where nothing is recomputed there is nothing to overlap.
  const bool overlap = choice.overlap && !plan.stores_all();
  for (StackPlan& stack : plan.stacks) stack.overlap = overlap;
  return plan;
}

// Network::step of an accelerator: see make_executor.
LanesMeant DryStep::overlapped() const {
  return on_streams() ? LanesMeant{.count = 3, .streams = true} : LanesMeant{.count = 2};
}

DryStep::DryStep(const MakeNetwork& make, const StepShape& shape) : shape_(shape) {
  memory::install_meta_meter();
  install_meta_kernels();
  if (on_streams()) pools_ = std::make_shared<memory::DevicePools>();
  const memory::MetaPoolsScope pools(pools_);
  const memory::Usage before = memory::usage(memory::Counted::meta);
  network_ = make();
  for (const at::Tensor& weight : network_->weights()) {
    if (weight.is_meta()) continue;
    throw std::invalid_argument("plan: expected a network on the meta device, got a weight on " +
                                weight.device().str() +
                                "; create it inside a pareprop::MetaDeviceScope");
  }
  network_->set_numerics(shape_.precision, shape_.arithmetic);
  memory::TagScope tag(memory::Tag::optimizer);
  std::vector<at::Tensor> trained;
  for (const at::Tensor& weight : network_->weights()) {
    if (weight.requires_grad()) trained.push_back(weight);
  }
  if (shape_.kept_gradients) {
    for (const at::Tensor& weight : shape_.kept_gradients(trained)) {
      keeps_gradients_.insert(weight.unsafeGetTensorImpl());
    }
  }
  if (shape_.optimizer_state) {
    for (at::Tensor& weight : trained) {
      weight = trained_[weight.unsafeGetTensorImpl()] = weight.detach();
    }
    optimizer_ = shape_.optimizer_state(trained);
  }
  own_ = minus_live(memory::usage(memory::Counted::meta), before);
}

memory::Usage DryStep::others() const {
  return minus_live(memory::usage(memory::Counted::meta), own_);
}

void DryStep::update(const std::vector<at::Tensor>& parameters,
                     const std::vector<at::Tensor>& gradients) {
  if (!optimizer_.step) return;
  std::vector<at::Tensor> stepped;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    stepped.push_back(trained_.at(parameters[i].unsafeGetTensorImpl()));
    stepped.back().mutable_grad() = gradients[i];
  }
  optimizer_.step();
  for (at::Tensor& weight : stepped) weight.mutable_grad().reset();
}

// Returns the multiply-accumulates of the forward pass.
Macs DryStep::backward(std::int64_t batch, bool adds, bool divides, bool steps) {
  const DevicePathScope path(on_streams());
  const memory::MetaPoolsScope pools(pools_);
  const MacCounter counter;
  const ResultsOnly results;
  std::shared_ptr<GradientTaker> taker;
  std::vector<at::Tensor> parameters, kept;
  if (shape_.updates_inside || divides) {
    taker = std::make_shared<TakenGradients>(*network_, [&](const BlockGradients& block) {
      if (shape_.updates_inside) update(block.parameters, block.gradients);
      for (std::size_t i = 0; divides && i < block.parameters.size(); ++i) {
        if (!keeps_gradients_.contains(block.parameters[i].unsafeGetTensorImpl())) continue;
        parameters.push_back(block.parameters[i]);
        kept.push_back(block.gradients[i]);
      }
    });
  } else if (adds) {
    using Products = AddedGradients::Products;
    taker = std::make_shared<AddedGradients>(
        *network_, shape_.sends_gradients ? Products::made_first : Products::added_to_sums);
  }
  network_->step(batch, std::make_shared<Pass>(0, 0, nullptr, std::move(taker),
                                               shape_.goes_back_twice ? 2 : 1));
  const Macs forward{counter.forward_macs()};
  if (!steps) return forward;
  if (!divides) {
    for (const at::Tensor& weight : network_->weights()) {
      if (!weight.grad().defined()) continue;
      parameters.push_back(weight);
      kept.push_back(weight.grad());
    }
  }
  const memory::MetaStreamScope copies(kCopies);
  const at::Tensor ahead =
      at::empty({batch * shape_.ahead_bytes}, at::device(at::kMeta).dtype(at::kByte));
  const memory::MetaStreamScope callers(0);
  update(parameters, kept);
  return forward;
}

Macs DryStep::metered_backward(MeteredLane& lane, std::int64_t batch, bool accumulates) {
  drop_gradients(*network_);
  if (pools_) {
    pools_->empty_cache();
    pools_->reset_peaks();
  }
  lane.begin();
  // The first part makes the gradients that later ones add to.
  if (accumulates) backward(batch, /*adds=*/false, /*divides=*/false, /*steps=*/false);
  const bool divides = shape_.takes_gradients(accumulates) && !shape_.updates_inside;
  return backward(batch, accumulates, divides, /*steps=*/true);
}

Prediction DryStep::run(const StepPlan& plan) {
  return run(plan, shape_.batch, shape_.accumulates);
}

Prediction DryStep::run(const StepPlan& plan, std::int64_t batch, bool accumulates) {
  drop_gradients(*network_);  // of a step that failed
  const memory::Usage before = others();
  const auto lane = std::make_shared<MeteredLane>(overlapped(), shape_.only_activations);
  network_->set_executor(lane);
  network_->set_plan(plan);
  metered_backward(*lane, batch, accumulates);
  Prediction usage{lane->usage()};
  const std::int64_t in_order = shape_.only_activations ? usage.activation_peak : usage.total_peak;
  drop_gradients(*network_);

  for (std::size_t tag = 0; tag < memory::kTags; ++tag) usage.peak[tag] -= before.live[tag];
  usage.activation_peak -= before.activation_live;
  // Drift probes and the like, which the meta device has not; scratch of torch's own ops besides.
  std::int64_t more = 4096;
  for (const Stack& stack : network_->stacks()) more += probe_bytes(shape_) * stack->depth();
  usage.at_most = usage.activation_peak / 256;
  if (plan.overlaps() && !on_streams()) {
    std::int64_t worst = in_order;
    for (const MeteredRun& run : lane->runs()) worst = std::max(worst, run.worst_meeting());
    more += worst - in_order;
    // What two tasks share goes with the later one, which another order makes another: seldom.
    usage.at_most += usage.activation_peak / 64;
  }
  usage.activation_peak += more + shape_.others(batch);
  usage.total_peak += more + shape_.others(batch) - before.total_live;
  if (shape_.only_activations) usage.total_peak = usage.activation_peak;
  usage.at_most += usage.total_peak;
  if (pools_) usage.reserved_peak = pools_->usage().peak_reserved + shape_.others(batch);
  return usage;
}

DryStep::Metered DryStep::metered(Policy policy, LanesMeant lanes, bool recompute_between) {
  const auto lane = std::make_shared<MeteredLane>(lanes, shape_.only_activations);
  StepPlan plan = uniform_plan(policy, /*overlap=*/true, network_->depths());
  plan.recompute_between = recompute_between;
  for (StackPlan& stack : plan.stacks) stack.tail = 0;
  network_->set_executor(lane);
  network_->set_plan(plan);
  Metered result;
  result.forward = metered_backward(*lane, shape_.batch, shape_.accumulates);
  result.below = lane->peak_since_last_run();
  const auto& stacks = network_->stacks();
  result.runs.resize(stacks.size());
  const auto& runs = lane->runs();
  // Those of the last backward pass. On streams forward passes are runs too.
  const std::size_t passes =
      (shape_.accumulates ? 2 : 1) * ((shape_.goes_back_twice ? 2 : 1) + (lanes.streams ? 1 : 0));
  auto run = runs.end() - static_cast<std::ptrdiff_t>(runs.size() / passes);
  // An empty stack has none, and neither have the lowest ones where nothing is trained.
  for (std::size_t s = stacks.size(); s-- > 0 && run != runs.end();) {
    if (stacks[s]->depth() > 0) result.runs[s] = *run++;
  }
  drop_gradients(*network_);
  return result;
}

WorkProfile DryStep::profile(bool recompute_between) {
  const memory::Usage besides = others();
  const std::int64_t before =
      (shape_.only_activations ? besides.activation_live : besides.total_live) -
      shape_.others(shape_.batch);
  const Coupling coupling = network_->coupling();
  const Policy leanest = leanest_policy(coupling);
  const Metered lean = metered(leanest, kSerial, recompute_between);
  const std::size_t stacks = lean.runs.size();
  WorkProfile profile{.stacks = std::vector<StackProfileIn<Macs>>(stacks),
                      .below = lean.below - before};
  Macs in_stacks;
  std::vector<Macs> stored(stacks);  // of gradients that have all they need
  for (const Policy policy : policies_of(coupling)) {
    const Metered serial = policy == leanest ? lean : metered(policy, kSerial, recompute_between);
    const Metered beside = metered(policy, overlapped(), recompute_between);
    std::int64_t kept_below = 0;  // of lower stacks
    for (std::size_t s = 0; s < stacks; ++s) {
      StackProfileIn<Macs>& stack = profile.stacks[s];
      const int depth = network_->stacks()[s]->depth();
      if (depth == 0) continue;
      const int first = first_block(lean.runs[s], depth), run = depth - first;
      stack.coupling = coupling;
      stack.first = first;
      if (policy == leanest) stack.live.resize(static_cast<std::size_t>(depth));
      if (run == 0) continue;
      const auto lean_windows = windows(lean.runs[s], depth, /*overlap=*/false);
      const auto own = windows(serial.runs[s], depth, /*overlap=*/false);
      const auto own_beside = windows(beside.runs[s], depth, /*overlap=*/true);
      const std::int64_t kept_here =
          minus(own.back().before, lean_windows.back().before + kept_below);
      BlockCostIn<Macs> cost{.kept = (kept_here + run - 1) / run};
      BlockCostIn<Macs> cost_beside = cost;
      Macs recovered, gradient, forward;
      for (auto i = static_cast<std::size_t>(first); i < own.size(); ++i) {
        const auto kept_blocks = static_cast<std::int64_t>(i) + 1 - first;
        const std::int64_t below = kept_below + cost.kept * kept_blocks;
        const std::int64_t live = lean_windows[i].before + below;
        cost.extra = std::max(cost.extra, minus(own[i].peak, live));
        cost_beside.extra = std::max(cost_beside.extra, minus(own_beside[i].peak, live));
        recovered += own[i].recovered / run;
        gradient += own[i].gradient / run;
        forward += lean_windows[i].recovered / run;
      }
      if (policy == Policy::store) stored[s] = gradient;
      if (policy == Policy::products) {
        recovered = kBetweenProducts * forward + gradient - stored[s];
      }
      cost.cost = cost_beside.cost = 2.0 * forward + recovered;
      stack.serial[static_cast<std::size_t>(policy)] = cost;
      stack.overlapped[static_cast<std::size_t>(policy)] = cost_beside;
      kept_below += cost.kept * run;
      stack.above = std::max(stack.above, minus(serial.runs[s].above, before + kept_below));
      // Recovery starts at a stored tape; one stream is made again from below.
      const bool recovers = is_reversible(coupling);
      if (policy == Policy::checkpoint && recovers) stack.edge = cost.kept / 2;
      if (policy != leanest) continue;
      in_stacks += static_cast<double>(run) * forward;
      for (std::size_t i = 0; i < lean_windows.size(); ++i) {
        stack.live[i] = lean_windows[i].before - before;
      }
    }
  }
  const Macs outside = lean.forward - in_stacks;
  profile.rest = lean.forward + (recompute_between ? 3.0 : 2.0) * outside;
  return profile;
}

}  // namespace pareprop::plan
