#pragma once

#include "pareprop/models/ending.h"
#include "pareprop/train/trained_run.h"

namespace pareprop::train {

// The reversible network with the weights of an ordinary one: the branches F and G of its blocks as
// they are, both streams beginning as its embedding, and the rest of it behind the ending of the
// streams. With Ending::sum_minus_x a network of one block gives the same scores, a deeper one
// nearly the same.
//
// Throws std::invalid_argument for a network that has no reversible form, or is reversible already,
// and for Ending::concat, which is too wide for what follows.
TrainedRun made_reversible(TrainedRun run, models::Ending ending);

}  // namespace pareprop::train
