#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "pareprop/models/registry.h"
#include "pareprop/plan/planner.h"

namespace pareprop::peers {

struct PlanRequest {
  std::string model;
  models::Overrides overrides;
  Precision precision = Precision::fp32;
  // The activations that may be there, as a share of what a plan that stores everything may take:
  // all of them, and a 256th for scratch. 0: a run without a budget, which takes what is free.
  double share = 0.0;
  std::optional<std::filesystem::path> times = std::nullopt;  // folder of times measured before
};

// Some samples of it.
models::Batch part_of(const models::Batch& batch, std::int64_t first, std::int64_t count);

struct PlannedStep {
  plan::Plan plan;  // of a part
  // The batch in so many parts of equal size, whose gradients are accumulated. More than one only
  // where a budget is too small for the whole.
  std::int64_t parts = 1;
};

// How a step of `model` is run: what the planner finds by measured times, or the leanest when
// nothing fits. With a share, budget and peaks are bytes of activations, the batch not counted.
// Without, of all tensors of this process; then stored where that fits, as in training. Throws
// std::invalid_argument for a share that is not within 0 and 1.
PlannedStep plan_step(const PlanRequest& request, models::Model& model, const models::Batch& batch);

}  // namespace pareprop::peers
