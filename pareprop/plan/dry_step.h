#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pareprop/memory/meter.h"
#include "pareprop/models/model.h"
#include "pareprop/plan/choose.h"
#include "pareprop/plan/metered_lane.h"

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

// How a step is run: policies with or without overlap, or, in a plain network, a mode.
struct StepPlan {
  Mode mode = Mode::reprop;
  std::vector<std::vector<Policy>> policies = {};  // of each stack; empty: the mode's
  bool recompute_between = false;                  // what lies between stacks

  bool operator==(const StepPlan&) const = default;
};
StepPlan step_plan(const Choice& choice, bool recompute_between);

// Gives every stack its policies, and all the same `options`, whose mode does not count.
void apply(const StepPlan& plan, models::Model& model, StackOptions options);

// Peaks that a step is expected to have, and the total that it keeps, for budgets: a little more,
// for scratch of torch's own, and with overlap, where it is chance which temporaries meet.
struct Prediction : memory::Usage {
  std::int64_t at_most = 0;
};

// Training steps of a network on the meta device: what they take, without taking it.
class DryStep {
 public:
  // `make` makes the network on the meta device. What the meter counts while a step is run counts
  // as the step's: nothing else should allocate tensors meanwhile.
  DryStep(const std::function<std::shared_ptr<models::Model>()>& make, const StepShape& shape);

  const models::Model& model() const { return *model_; }
  const StepShape& shape() const { return shape_; }

  // With overlap the totals are of the worst meeting that the schedule allows.
  Prediction run(const StepPlan& plan);

  // The same with another batch, or another number of micro-steps.
  Prediction run(const StepPlan& plan, std::int64_t batch, bool accumulates);

  // Bytes of Note [The model of the peak], with seconds in multiply-accumulates: gradients count
  // two for each of the forward pass. REQUIRES: the network has stacks.
  Profile profile(bool recompute_between);

 private:
  struct Metered {
    std::vector<MeteredRun> runs;  // from the input of the network on
    std::int64_t below = 0;
    double forward_macs = 0.0;
  };
  StackOptions options(std::shared_ptr<Executor> executor) const;
  memory::Usage others() const;  // live bytes of all else in the process
  double backward(std::int64_t batch);
  double metered_backward(MeteredLane& lane, std::int64_t batch, bool accumulates);
  void drop_gradients();
  Metered metered(Policy policy, int lanes, bool recompute_between);

  StepShape shape_;
  memory::Usage own_;  // live bytes of the network and its optimizer
  std::shared_ptr<models::Model> model_;
  std::vector<at::Tensor> optimizer_;
};

}  // namespace pareprop::plan
