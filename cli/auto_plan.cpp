#include "cli/auto_plan.h"

#include <stdexcept>

#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"
#include "pareprop/reversible/network_memory.h"

namespace pareprop::cli {

namespace {

plan::MakeNetwork maker(const ModelFlags& network, Precision precision) {
  return [network, precision] {
    return make_model(network, {.dtype = stream_dtype(precision), .device = at::kMeta});
  };
}

}  // namespace

plan::JointSearch make_search(const ModelFlags& network, const plan::StepShape& shape,
                              std::vector<plan::Departure> allowed) {
  return {maker(network, shape.precision), shape, std::move(allowed)};
}

plan::Planner make_planner(const ModelFlags& network, const plan::StepShape& shape) {
  return {maker(network, shape.precision), shape};
}

StepPlan plan_for_free_memory(const ModelFlags& network, const plan::StepShape& shape,
                              models::Model& model) {
  plan::Planner planner = make_planner(network, shape);
  const c10::Device device = device_of(model);
  const std::int64_t budget = plan::free_budget(device) + usage_on(device).total_live;
  StepPlan stored = planner.all(Mode::stored);
  if (planner.predict(stored).at_most <= budget) return stored;
  plan::learn_times(planner, model,
                    {.budget = budget,
                     .network = plan::network_name(network.model, model.tokens()),
                     .folder = plan::cache_folder()});
  const plan::Plan plan = planner.plan(budget);
  if (plan.fits) return plan.step;
  throw std::invalid_argument(plan::does_not_fit(plan, title(network), shape.batch));
}

StepPlan plan_of_a_mixture(const ModelFlags& network, const plan::StepShape& shape) {
  plan::Planner planner = make_planner(network, shape);
  const std::int64_t least = planner.plan_step(0).smallest_budget;
  const std::int64_t most = planner.predict(planner.all(Mode::stored)).at_most;
  return planner.plan_step(least + (most - least) / 2).step;
}

}  // namespace pareprop::cli
