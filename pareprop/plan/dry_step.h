#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pareprop/memory/device_pools.h"
#include "pareprop/memory/meter.h"
#include "pareprop/plan/choose.h"
#include "pareprop/plan/metered_lane.h"
#include "pareprop/reversible/network.h"

namespace pareprop::plan {

// An optimizer of weights on the meta device.
struct DryOptimizer {
  std::vector<at::Tensor> state;
  // Steps those of the weights that have a gradient. Null: this takes no memory.
  std::function<void()> step = nullptr;
};

// Makes the optimizer of these weights. Null: there is none.
using MakeOptimizer = std::function<DryOptimizer(const std::vector<at::Tensor>& weights)>;

// As many copies of each weight as AdamW (2), SGD with momentum (1) or an average of the weights
// (1 more) has.
MakeOptimizer copies_of_weights(int copies);

// What the memory of a training step depends on, besides the network and its plan.
struct StepShape {
  std::int64_t batch = 1;
  c10::Device device =
      at::kCPU;  // that it stands for: an accelerator computes with other operators
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  MakeOptimizer optimizer_state = copies_of_weights(2);
  bool accumulates = false;  // gradient accumulation: gradients already exist
  // To other processes: those of the last part are made before they are added up.
  bool sends_gradients = false;
  bool updates_inside = false;   // the optimizer steps inside the backward pass
  bool goes_back_twice = false;  // ... which runs a first time for the norm of all gradients
  // Of these weights, those whose gradients this process keeps, and the others not, unless it
  // accumulates. Null: all.
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& weights)> kept_gradients =
      nullptr;
  bool only_activations = false;  // totals leave out weights, gradients and optimizer
  std::int64_t other_bytes = 0;   // data, buffers of other processes
  std::int64_t sample_bytes = 0;  // the same for each sample: batches that wait
  std::int64_t input_bytes = 0;   // of a sample that waits while another part of the batch runs
  // Of each sample of the next batch, or part, which an accelerator has when the optimizer steps.
  std::int64_t ahead_bytes = 0;
  std::int64_t parts_bytes = 0;  // more of other_bytes, where the batch is cut into parts

  // Whether gradients are taken out of the backward pass as soon as they are final. `adds`: to
  // those that are there.
  bool takes_gradients(bool adds) const { return updates_inside || (kept_gradients && !adds); }

  std::int64_t others(std::int64_t samples) const { return other_bytes + samples * sample_bytes; }
};

StepPlan step_plan(const Choice& choice, bool recompute_between);

// The predicted peaks of a step. `at_most` is for budgets: the total peak and a margin, for scratch
// memory of torch itself and, with overlap, for temporaries that may be alive at the same time.
// On an accelerator they have the rounded bytes that its allocator counts: Note [Pools of an
// accelerator].
struct Prediction : memory::Usage {
  std::int64_t at_most = 0;
};

// Returns a network whose weights are on the meta device (create it inside a MetaDeviceScope).
using MakeNetwork = std::function<std::shared_ptr<Network>()>;

// Runs training steps of a network on the meta device: they show how much memory a step needs
// without using it.
class DryStep {
 public:
  // No other thread should allocate tensors while a step runs: the meter would count them too.
  // Throws std::invalid_argument if a weight is not on the meta device.
  DryStep(const MakeNetwork& make, const StepShape& shape);

  const Network& network() const { return *network_; }
  const StepShape& shape() const { return shape_; }

  // With overlap the totals are those of the worst order that the schedule allows on a CPU's lanes
  // (graph/worst_meeting.h). On streams there is one: that in which the host issues the tasks.
  Prediction run(const StepPlan& plan);

  // The same with another batch, with or without gradient accumulation.
  Prediction run(const StepPlan& plan, std::int64_t batch, bool accumulates);

  // Bytes of Note [The model of the peak], and multiply-accumulates: gradients count two for each
  // of the forward pass. REQUIRES: the network has stacks.
  WorkProfile profile(bool recompute_between);

 private:
  struct Metered {
    std::vector<MeteredRun> runs;  // from the input of the network on
    std::int64_t below = 0;
    Macs forward;
  };
  memory::Usage others() const;  // live bytes of all else in the process
  bool on_streams() const { return !shape_.device.is_cpu(); }
  LanesMeant overlapped() const;
  // `adds`: to gradients that are there. `divides`: only kept_gradients() are kept.
  // `steps`: then the optimizer does.
  Macs backward(std::int64_t batch, bool adds, bool divides, bool steps);
  // The optimizer's step with these gradients.
  void update(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients);
  Macs metered_backward(MeteredLane& lane, std::int64_t batch, bool accumulates);
  Metered metered(Policy policy, LanesMeant lanes, bool recompute_between);

  StepShape shape_;
  std::shared_ptr<memory::DevicePools> pools_;  // of an accelerator
  memory::Usage own_;                           // live bytes of the network and its optimizer
  std::shared_ptr<Network> network_;
  DryOptimizer optimizer_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> trained_;  // by weight: what it steps
  std::unordered_set<const c10::TensorImpl*> keeps_gradients_;      // of which weights
};

}  // namespace pareprop::plan
