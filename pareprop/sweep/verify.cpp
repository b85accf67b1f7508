#include "pareprop/sweep/verify.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "pareprop/device/torch_error.h"
#include "pareprop/ops/compare.h"
#include "pareprop/reversible/network_memory.h"
#include "pareprop/reversible/torch_lanes.h"
#include "pareprop/text/units.h"

namespace pareprop {
namespace {

struct Step {
  std::vector<at::Tensor> gradients;  // of parameters, then of the input
  int missing = 0;
};

// Parameters of stacks that allow them to get no gradient.
std::unordered_set<const c10::TensorImpl*> may_be_unused(const Network& network) {
  std::unordered_set<const c10::TensorImpl*> found;
  for (const Stack& stack : network.stacks()) {
    if (!stack->options().allow_unused_parameters) continue;
    for (const at::Tensor& one : stack->weights()) found.insert(one.unsafeGetTensorImpl());
  }
  return found;
}

Step run_step(Network& network, const VerifyOptions& options) {
  drop_gradients(network);
  const std::vector<at::Tensor> inputs =
      network.step_to_inputs(options.batch, std::make_shared<Pass>(options.seed, 0));
  Step step;
  const auto unused = may_be_unused(network);
  for (const at::Tensor& weight : network.weights()) {
    if (!weight.requires_grad()) continue;
    const bool expected = !unused.contains(weight.unsafeGetTensorImpl());
    step.missing += expected && !weight.grad().defined() ? 1 : 0;
    step.gradients.push_back(weight.grad());
  }
  drop_gradients(network);
  step.gradients.insert(step.gradients.end(), inputs.begin(), inputs.end());
  return step;
}

Step run_reference(Network& network, const VerifyOptions& options) {
  struct Scope {
    Network& network;
    explicit Scope(Network& one) : network(one) { network.set_reference(true); }
    ~Scope() { network.set_reference(false); }
  } const scope(network);
  return run_step(network, options);
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
           ": a gradient is not finite, or has the wrong shape";
  }
  if (row.max_rel_error > tolerance) {
    return "max_rel_error " + text::error_text(row.max_rel_error) + " is above the tolerance " +
           text::error_text(tolerance);
  }
  return "gradients differ from those of mode stored; expected the same bits";
}

std::vector<VerifyRow> verify(Network& network, const VerifyOptions& options) {
  constexpr int kLanes = 2;
  const IntraOpThreads threads(std::max(1, at::get_num_threads() / kLanes));
  const NetworkRestored restored(network);
  if (device_of(network).is_cpu()) {
    network.set_executor(std::make_shared<TorchCpuLanes>(kLanes, at::get_num_threads()));
  }
  network.set_numerics(options.precision, options.arithmetic);
  network.set_mode(Mode::stored);
  const bool exact = options.arithmetic == Arithmetic::exact;
  const Step expected = exact ? run_step(network, options) : run_reference(network, options);

  std::vector<VerifyRow> rows;
  const auto compare = [&](Mode mode) {
    VerifyRow row{.mode = mode};
    try {
      const Step got = run_step(network, options);
      row.max_rel_error = max_relative_error(expected.gradients, got.gradients);
      row.bit_identical = bit_identical(expected.gradients, got.gradients);
      row.missing_gradients = got.missing;
      row.drift = network.drift().worst;
    } catch (const std::exception& error) {
      row.error = explained(error);
      row.max_rel_error = std::numeric_limits<double>::infinity();
    }
    row.holds = row.error.empty() && row.missing_gradients == expected.missing &&
                row.missing_gradients == 0 &&
                row.max_rel_error <= verify_tolerance(options.precision) &&
                (!exact || row.bit_identical);
    rows.push_back(std::move(row));
  };
  for (const Mode mode : options.modes) {
    network.set_mode(mode);
    compare(mode);
  }
  for (const StepPlan& plan : options.plans) {
    network.set_plan(plan);
    compare(Mode::automatic);
  }
  return rows;
}

}  // namespace pareprop
