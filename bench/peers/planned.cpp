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

template <typename Planner>
void learn(Planner& planner, const PlanRequest& request, models::Model& model, std::int64_t free) {
  plan::learn_times(planner, model,
                    {.budget = free,
                     .network = plan::network_name(request.model, model.tokens()),
                     .folder = request.times});
}

// Within a share of the activations of stored training, in whatever parts are the fastest. The
// bytes of the batch do not count.
PlannedStep plan_share(const PlanRequest& request, models::Model& model,
                       const models::Batch& batch) {
  const std::int64_t samples = batch.input.size(0);
  plan::JointSearch search(on_meta(request), {.batch = samples,
                                              .precision = request.precision,
                                              .optimizer_state = {},
                                              .only_activations = true,
                                              .other_bytes = -bytes_of(batch),
                                              .input_bytes = bytes_of(batch) / samples});
  const auto stored = search.in_mode(Mode::stored, 0).micro.predicted.at_most;
  const std::int64_t budget = std::llround(request.share * static_cast<double>(stored));
  learn(search, request, model, budget);
  plan::JointPlan planned = search.best(budget);
  return {.plan = std::move(planned.micro), .parts = planned.parts};
}

// Within the memory that is free.
plan::Plan plan_free(const PlanRequest& request, models::Model& model, const models::Batch& batch) {
  const std::int64_t live = memory::usage().total_live;
  const std::int64_t free = plan::free_budget() + live;
  plan::Planner planner(on_meta(request),
                        {.batch = batch.input.size(0),
                         .precision = request.precision,
                         .optimizer_state = {},
                         // A dry step has weights and a batch of its own.
                         .other_bytes = live - bytes_of(model) - bytes_of(batch)});

  plan::Plan plan;
  plan.step = planner.all(Mode::stored);
  plan.predicted = planner.predict(plan.step);
  plan.budget = free;
  plan.fits = plan.predicted.at_most <= plan.budget;
  if (plan.fits) return plan;
  learn(planner, request, model, free);
  return planner.plan_step(plan.budget);
}

}  // namespace

PlannedStep plan_step(const PlanRequest& request, models::Model& model,
                      const models::Batch& batch) {
  if (!(request.share >= 0.0 && request.share <= 1.0)) {
    throw std::invalid_argument("share is " + std::to_string(request.share) +
                                ": expected a part of the activations, from 0 to 1");
  }
  if (request.share > 0.0) return plan_share(request, model, batch);
  return {.plan = plan_free(request, model, batch)};
}

}  // namespace pareprop::peers
