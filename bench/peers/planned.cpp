#include "bench/peers/planned.h"

#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>

#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"

namespace pareprop::peers {

models::Batch part_of(const models::Batch& batch, std::int64_t first, std::int64_t count) {
  return {.input = batch.input.narrow(0, first, count),
          .target = batch.target.narrow(0, first, count)};
}

namespace {

std::int64_t bytes_of(const models::Model& model) {
  std::int64_t sum = 0;
  for (const at::Tensor& weight : model.parameters()) {
    sum += static_cast<std::int64_t>(weight.nbytes());
  }
  return sum;
}

std::int64_t bytes_of(const models::Batch& batch) {
  return static_cast<std::int64_t>(batch.input.nbytes() + batch.target.nbytes());
}

std::function<std::shared_ptr<models::Model>()> on_meta(const PlanRequest& request) {
  return [&request] {
    return models::make_model(request.model, request.overrides, {.device = at::kMeta});
  };
}

// Of tensors of this process that a dry step does not have: it has weights and a batch of its own.
std::int64_t other_bytes(const models::Model& model, const models::Batch& batch) {
  return memory::usage().total_live - bytes_of(model) - bytes_of(batch);
}

// What may be taken of stored training.
std::int64_t share_of(plan::JointSearch& search, const PlanRequest& request) {
  const plan::Prediction stored = search.in_mode(Mode::stored, 0).micro.predicted;
  const std::int64_t activations = request.totals ? stored.activation_peak : stored.at_most;
  return stored.at_most - std::llround((1.0 - request.share) * static_cast<double>(activations));
}

}  // namespace

PlannedStep plan_step(const PlanRequest& request, models::Model& model,
                      const models::Batch& batch) {
  if (!(request.share >= 0.0 && request.share <= 1.0)) {
    throw std::invalid_argument("share is " + std::to_string(request.share) +
                                ": expected a part of the activations, from 0 to 1");
  }
  if (request.bytes < 0) {
    throw std::invalid_argument("bytes is " + std::to_string(request.bytes) +
                                ": expected a number of bytes");
  }
  const bool budgeted = request.share > 0.0 || request.bytes > 0;
  const bool totals = request.totals || !budgeted;
  const std::int64_t samples = batch.input.size(0);
  plan::JointSearch search(on_meta(request),
                           {.batch = samples,
                            .precision = request.precision,
                            .optimizer_state = {},
                            .only_activations = !totals,
                            .other_bytes = totals ? other_bytes(model, batch) : -bytes_of(batch),
                            .input_bytes = bytes_of(batch) / samples});
  const std::int64_t budget = !budgeted           ? plan::free_budget() + memory::usage().total_live
                              : request.bytes > 0 ? request.bytes
                                                  : share_of(search, request);
  if (!search.in_mode(Mode::stored, budget).micro.fits) {
    plan::learn_times(search, model,
                      {.budget = budget,
                       .network = plan::network_name(request.model, model.tokens()),
                       .folder = request.times});
  }
  plan::JointPlan planned = search.best(budget);
  return {.plan = std::move(planned.micro), .parts = planned.parts};
}

}  // namespace pareprop::peers
