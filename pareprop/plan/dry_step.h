#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pareprop/memory/meter.h"
#include "pareprop/plan/choose.h"
#include "pareprop/plan/metered_lane.h"
#include "pareprop/reversible/network.h"

namespace pareprop::plan {

// What a training step holds besides a network and its activations.
struct StepShape {
  std::int64_t batch = 1;
  Precision precision = Precision::fp32;
  Arithmetic arithmetic = Arithmetic::floating;
  int optimizer_copies = 2;       // of the weights: AdamW has two, an average one more
  bool accumulates = false;       // gradients of an earlier micro-step are there already
  bool only_activations = false;  // totals do not count weights, gradients and optimizer
  std::int64_t other_bytes = 0;   // data, buffers of other processes
  std::int64_t sample_bytes = 0;  // more of them for each sample: batches that wait

  std::int64_t others(std::int64_t samples) const { return other_bytes + samples * sample_bytes; }
};

StepPlan step_plan(const Choice& choice, bool recompute_between);

// Peaks that a step is expected to have, and the total that it keeps, for budgets: a little more,
// for scratch of torch's own, and with overlap, where it is chance which temporaries meet.
struct Prediction : memory::Usage {
  std::int64_t at_most = 0;
};

// Makes a network whose weights are on the meta device (MetaDeviceScope makes any module there).
using MakeNetwork = std::function<std::shared_ptr<Network>()>;

// Training steps of a network on the meta device: what they take, without taking it.
class DryStep {
 public:
  // What the meter counts while a step is run counts as the step's: nothing else should allocate
  // tensors meanwhile. Throws std::invalid_argument when a weight is not on the meta device.
  DryStep(const MakeNetwork& make, const StepShape& shape);

  const Network& network() const { return *network_; }
  const StepShape& shape() const { return shape_; }

  // With overlap the totals are of the worst meeting that the schedule allows.
  Prediction run(const StepPlan& plan);

  // The same with another batch, or another number of micro-steps.
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
  Macs backward(std::int64_t batch);
  Macs metered_backward(MeteredLane& lane, std::int64_t batch, bool accumulates);
  Metered metered(Policy policy, int lanes, bool recompute_between);

  StepShape shape_;
  memory::Usage own_;  // live bytes of the network and its optimizer
  std::shared_ptr<Network> network_;
  std::vector<at::Tensor> optimizer_;
};

}  // namespace pareprop::plan
