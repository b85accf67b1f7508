#include "bench/peers/planned.h"

#include <cmath>
#include <stdexcept>

#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"

namespace pareprop::peers {
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

}  // namespace

plan::Plan plan_step(const PlanRequest& request, models::Model& model, const models::Batch& batch) {
  if (!(request.share >= 0.0 && request.share <= 1.0)) {
    throw std::invalid_argument("share is " + std::to_string(request.share) +
                                ": expected a part of the activations, from 0 to 1");
  }
  const bool by_share = request.share > 0.0;
  const std::int64_t live = memory::usage().total_live;
  const std::int64_t free = plan::free_budget() + live;
  // A dry step has weights and a batch of its own.
  const std::int64_t besides = by_share ? 0 : live - bytes_of(model);
  plan::Planner planner(
      [&] { return models::make_model(request.model, request.overrides, {.device = at::kMeta}); },
      {.batch = batch.input.size(0),
       .precision = request.precision,
       .optimizer_copies = 0,
       .only_activations = by_share,
       .other_bytes = besides - bytes_of(batch)});

  plan::Plan plan;
  plan.step = planner.all(Mode::stored);
  plan.predicted = planner.predict(plan.step);
  plan.budget = by_share
                    ? std::llround(request.share * static_cast<double>(plan.predicted.total_peak))
                    : free;
  plan.fits = plan.predicted.at_most <= plan.budget;
  if (plan.fits && !by_share) return plan;
  plan::learn_times(planner, model, batch, {.precision = request.precision},
                    {.budget = free, .network = request.model, .folder = request.times});
  return planner.plan_step(plan.budget);
}

}  // namespace pareprop::peers
