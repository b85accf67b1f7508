#pragma once

#include "pareprop/distributed/shares.h"
#include "pareprop/plan/dry_step.h"
#include "pareprop/reversible/network.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// A process that is to be planned for, among those that train together.
struct PlannedProcess {
  int rank = 0;
  int all = 1;
  distributed::Shard shard = distributed::Shard::none;
  Update update = Update::after;
  bool accumulates = false;  // gradients of several micro-batches
};

// The process that has the most of these weights.
int fullest_rank(const std::vector<at::Tensor>& weights, int processes);

// Counts in `shape` what this process keeps of the optimizer's state and of the gradients, and adds
// the gradients that travel to other processes. `shape.optimizer_state` makes the state of the
// weights that it is given. Of `network` only the shapes count.
void divide(plan::StepShape& shape, const Network& network, const PlannedProcess& process);

}  // namespace pareprop::train
