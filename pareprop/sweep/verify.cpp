#include "pareprop/sweep/verify.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "pareprop/ops/compare.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/text/units.h"

namespace pareprop {
namespace {

struct Step {
  std::vector<at::Tensor> gradients;  // of parameters, then of the input
  int missing = 0;
};

Step run_step(models::Model& model, const VerifyOptions& options, bool reference) {
  models::Batch batch = model.example(options.batch, options.seed);
  const bool differentiable = at::isFloatingType(batch.input.scalar_type());
  if (differentiable) batch.input.requires_grad_(true);
  for (auto& parameter : model.parameters()) parameter.mutable_grad().reset();
  model.loss(batch, {.pass = std::make_shared<Pass>(options.seed, 0), .reference = reference})
      .backward();
  Step step;
  for (auto& parameter : model.parameters()) {
    if (!parameter.requires_grad()) continue;
    step.missing += parameter.grad().defined() ? 0 : 1;
    step.gradients.push_back(parameter.grad());
    parameter.mutable_grad().reset();
  }
  if (differentiable) step.gradients.push_back(batch.input.grad());
  return step;
}

}  // namespace

double verify_tolerance(Precision precision) {
  switch (precision) {
    case Precision::fp64:
      return 1e-10;
    case Precision::fp32:
      return 1e-5;
    case Precision::bf16:
      return 2e-2;
  }
  return 0.0;
}

std::string complaint(const VerifyRow& row, Precision precision) {
  if (row.holds) return "";
  if (!row.error.empty()) return row.error;
  if (row.missing_gradients > 0) {
    return std::to_string(row.missing_gradients) + " parameters got no gradient";
  }
  const double tolerance = verify_tolerance(precision);
  if (!std::isfinite(row.max_rel_error)) {
    return "max_rel_error is " + text::error_text(row.max_rel_error) +
           ": a gradient is not finite, or has another shape";
  }
  if (row.max_rel_error > tolerance) {
    return "max_rel_error " + text::error_text(row.max_rel_error) + " is above the tolerance " +
           text::error_text(tolerance);
  }
  return "gradients do not have the bits of stored training";
}

std::vector<VerifyRow> verify(models::Model& model, const VerifyOptions& options) {
  constexpr int kLanes = 2;
  const IntraOpThreads threads(std::max(1, at::get_num_threads() / kLanes));
  const auto executor = std::make_shared<TorchCpuLanes>(kLanes, at::get_num_threads());
  StackOptions stack{
      .precision = options.precision, .arithmetic = options.arithmetic, .executor = executor};
  model.train();
  stack.mode = Mode::stored;
  model.set_stack_options(stack);
  const bool exact = options.arithmetic == Arithmetic::exact;
  const Step expected = run_step(model, options, /*reference=*/!exact);

  std::vector<VerifyRow> rows;
  const auto compare = [&](Mode mode) {
    VerifyRow row{.mode = mode};
    try {
      const Step got = run_step(model, options, false);
      row.max_rel_error = max_relative_error(expected.gradients, got.gradients);
      row.bit_identical = bit_identical(expected.gradients, got.gradients);
      row.missing_gradients = got.missing;
      row.drift = model.drift().worst;
    } catch (const std::exception& error) {
      row.error = error.what();
      row.max_rel_error = std::numeric_limits<double>::infinity();
    }
    row.holds = row.error.empty() && row.missing_gradients == expected.missing &&
                row.missing_gradients == 0 &&
                row.max_rel_error <= verify_tolerance(options.precision) &&
                (!exact || row.bit_identical);
    rows.push_back(std::move(row));
  };
  for (const Mode mode : options.modes) {
    stack.mode = mode;
    model.set_stack_options(stack);
    compare(mode);
  }
  for (const plan::StepPlan& step : options.plans) {
    plan::apply(step, model, stack);
    compare(Mode::automatic);
  }
  return rows;
}

}  // namespace pareprop
