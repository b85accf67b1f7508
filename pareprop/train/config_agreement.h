#pragma once

#include "pareprop/distributed/process_group.h"
#include "pareprop/train/train_config.h"

namespace pareprop::train {

// Compares the configurations of all processes; called by all of them. Throws std::invalid_argument
// in each, with the same text, when a field differs that all must share: it names the field, both
// values and ranks. What may differ: the time-out, what only concerns one machine (memory,
// threads), and what only rank 0 does.
void check_same_config(const TrainConfig& config, distributed::ProcessGroup& group);

}  // namespace pareprop::train
