#include "cli/auto_plan.h"

#include <stdexcept>

#include "pareprop/plan/free_budget.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/step_times_file.h"
#include "pareprop/reversible/network_memory.h"

namespace pareprop::cli {

plan::MakeNetwork on_meta(const ModelFlags& network, Precision precision) {
  return [network, precision] {
    return make_model(network, {.dtype = stream_dtype(precision), .device = at::kMeta});
  };
}

plan::JointSearch make_search(const ModelFlags& network, const plan::StepShape& shape,
                              std::vector<plan::Departure> allowed) {
  return {on_meta(network, shape.precision), shape, std::move(allowed)};
}

plan::Planner make_planner(const ModelFlags& network, const plan::StepShape& shape) {
  return {on_meta(network, shape.precision), shape};
}

plan::JointPlan plan_for_free_memory(const ModelFlags& network, const plan::StepShape& shape,
                                     models::Model& model) {
  plan::JointSearch search = make_search(network, shape);
  const c10::Device device = device_of(model);
  const std::int64_t budget = plan::free_budget(device) + usage_on(device).total_live;
  plan::JointPlan plan = search.in_mode(Mode::stored, budget);
  if (plan.micro.fits) return plan;
  plan::learn_times(search, model,
                    {.budget = budget,
                     .network = plan::network_name(network.model, model.tokens()),
                     .folder = plan::cache_folder()});
  plan = search.best(budget);
  if (plan.micro.fits) return plan;
  search.add_figures(plan);
  throw std::invalid_argument(plan::does_not_fit(plan.micro, title(network), shape.batch));
}

StepPlan plan_of_a_mixture(const ModelFlags& network, const plan::StepShape& shape) {
  plan::Planner planner = make_planner(network, shape);
  const std::int64_t least = planner.plan_step(0).smallest_budget;
  const std::int64_t most = planner.predict(planner.all(Mode::stored)).at_most;
  return planner.plan_step(least + (most - least) / 2).step;
}

}  // namespace pareprop::cli
