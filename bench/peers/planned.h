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
  // The activations that may be there: in bytes, or as a share of what a plan that stores
  // everything may take, which is all of them and a 256th for scratch. Both 0: a run without a
  // budget, which takes what is free.
  double share = 0.0;
  std::int64_t bytes = 0;
  // The bytes are of all tensors: of stored training it may take what the share leaves of
  // activations, and all the rest.
  bool totals = false;
  std::optional<std::filesystem::path> times = std::nullopt;  // folder of times measured before
};

// Some samples of it.
models::Batch part_of(const models::Batch& batch, std::int64_t first, std::int64_t count);

struct PlannedStep {
  plan::Plan plan;         // of a part
  std::int64_t parts = 1;  // of equal size, whose gradients are added up
};

// How a step of `model` is run: stored where that fits, else what the planner finds by measured
// times, or the leanest when nothing fits. With a share or bytes, budget and peaks are those of
// activations, the batch not counted; in totals, and without a budget, of all tensors of this
// process. Throws std::invalid_argument for a share that is not within 0 and 1, and for bytes
// below 0.
PlannedStep plan_step(const PlanRequest& request, models::Model& model, const models::Batch& batch);

}  // namespace pareprop::peers
