#pragma once

#include "cli/model_flags.h"
#include "pareprop/plan/joint_search.h"

namespace pareprop::cli {

// Makes the network that the flags name on the meta device.
plan::MakeNetwork on_meta(const ModelFlags& network, Precision precision);

// Plans for the network that the flags name: what mode `auto` means in commands that have no run.
plan::JointSearch make_search(const ModelFlags& network, const plan::StepShape& shape,
                              std::vector<plan::Departure> allowed = {});
// The same for batches that are not cut.
plan::Planner make_planner(const ModelFlags& network, const plan::StepShape& shape);

// The fastest way to compute a batch in what is free, in parts where that is faster, as `train`
// does. `model` is the network itself: a few of its steps are timed where storing everything does
// not fit. Throws std::invalid_argument when nothing fits.
plan::JointPlan plan_for_free_memory(const ModelFlags& network, const plan::StepShape& shape,
                                     models::Model& model);

// A plan for half of the bytes between the leanest and stored training: some blocks are stored and
// others are not, so that whoever compares gradients sees a mixture.
StepPlan plan_of_a_mixture(const ModelFlags& network, const plan::StepShape& shape);

}  // namespace pareprop::cli
