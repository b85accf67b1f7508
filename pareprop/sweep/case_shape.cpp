#include "pareprop/sweep/case_shape.h"

#include "pareprop/models/cost.h"
#include "pareprop/models/registry.h"

namespace pareprop::sweep {

CaseShape shape_of(const Case& one) {
  // Activations are seen in float32 and taken as growing with the batch and the streams' width.
  const auto model = models::make_model(one.model, one.change, {.device = at::kMeta});
  const models::Cost cost = models::cost_of(*model);
  const auto element_bytes = static_cast<double>(c10::elementSize(stream_dtype(one.precision)));
  const double scale = static_cast<double>(one.batch) * element_bytes /
                       static_cast<double>(c10::elementSize(at::kFloat));
  CaseShape shape{.tokens = model->tokens(),
                  .forward_macs = cost.macs,
                  .weight_bytes = static_cast<double>(model->parameter_count()) * element_bytes,
                  .stored_bytes = cost.activation_bytes_stored * scale,
                  .reversible_bytes = cost.activation_bytes_reversible * scale};
  for (const Stack& stack : model->stacks()) shape.depth += stack->depth();
  return shape;
}

double CaseShape::step_bytes(Mode mode) const {
  return 2.0 * weight_bytes + (mode == Mode::stored ? stored_bytes : reversible_bytes);
}

double CaseShape::work(const Case& one, int timed_steps) const {
  constexpr double kUntimedSteps = 3.0, kProducts = 4.0;
  const double contestants = static_cast<double>(one.modes.size() + one.budgets.size());
  return forward_macs * static_cast<double>(one.batch) * kProducts * contestants *
         (timed_steps + kUntimedSteps) / one.threads;
}

}  // namespace pareprop::sweep
