#include <pybind11/stl.h>

#include "pareprop/memory/meta_meter.h"
#include "pareprop/optim/make_optimizer.h"
#include "pareprop/plan/learn_times.h"
#include "pareprop/plan/plan_words.h"
#include "pareprop/plan/planner.h"
#include "pareprop/reversible/network.h"
#include "pareprop/sweep/verify.h"
#include "pareprop/text/units.h"
#include "pareprop/trace/chrome.h"
#include "pareprop/trace/recorder.h"
#include "pareprop/trace/step_svg.h"
#include "python/bindings/bind.h"
#include "python/bindings/current_pass.h"
#include "python/bindings/held_object.h"

namespace pareprop::python {
namespace {

// Its gradients go to autograd, but those of block_weights().
class PythonNetwork final : public StackNetwork {
 public:
  PythonNetwork(std::vector<Stack> stacks, std::vector<at::Tensor> weights, py::object step,
                std::vector<at::Tensor> block_weights)
      : StackNetwork(std::move(stacks), std::move(weights),
                     [held = hold(std::move(step))](std::int64_t samples,
                                                    const std::shared_ptr<Pass>& pass) {
                       const PassScope scope(pass);
                       const py::gil_scoped_acquire gil;
                       (*held)(samples);
                     }),
        block_weights_(std::move(block_weights)) {}

  std::vector<at::Tensor> block_weights() const override { return block_weights_; }

 private:
  std::vector<at::Tensor> block_weights_;
};

std::shared_ptr<Network> make_network(std::vector<Stack> stacks, std::vector<at::Tensor> weights,
                                      py::object step, std::vector<at::Tensor> block_weights) {
  return std::make_shared<PythonNetwork>(std::move(stacks), std::move(weights), std::move(step),
                                         std::move(block_weights));
}

// Of a callable that returns a Network of Python on the meta device.
plan::MakeNetwork make_by(py::object make) {
  return [held = hold(std::move(make))] {
    memory::install_meta_meter();
    const py::gil_scoped_acquire gil;
    return (*held)().cast<std::shared_ptr<Network>>();
  };
}

plan::StepShape step_shape(std::int64_t batch, const std::string& precision, bool exact,
                           const std::string& optimizer, const std::string& state, bool accumulates,
                           std::int64_t other_bytes) {
  plan::StepShape shape{.batch = batch,
                        .precision = parse_precision(precision),
                        .arithmetic = exact ? Arithmetic::exact : Arithmetic::floating,
                        .accumulates = accumulates,
                        .other_bytes = other_bytes};
  if (optimizer == "none") {
    shape.optimizer_state = nullptr;
    return shape;
  }
  const optim::OptimizerOptions options{.kind = optim::parse_optimizer_kind(optimizer),
                                        .state = optim::parse_state_kind(state)};
  optim::check_suits(options.kind, options.state);
  shape.optimizer_state = [options](const std::vector<at::Tensor>& weights) {
    return plan::DryOptimizer{.state =
                                  optim::state_tensors(*optim::dry_optimizer(weights, options))};
  };
  return shape;
}

py::dict bytes_by_tag(const plan::Prediction& predicted) {
  py::dict result;
  for (std::size_t tag = 0; tag < memory::kTags; ++tag) {
    result[py::str(std::string(memory::name(static_cast<memory::Tag>(tag))))] = predicted.peak[tag];
  }
  return result;
}

void bind_planner(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<plan::Prediction>(module, "Prediction")
      .def_readonly("total", &plan::Prediction::total_peak)
      .def_readonly("at_most", &plan::Prediction::at_most)
      .def_readonly("activations", &plan::Prediction::activation_peak)
      .def_property_readonly("by_tag", &bytes_by_tag)
      .def_property_readonly("text", &plan::parts_text);

  py::class_<plan::Plan>(module, "Plan")
      .def_readonly("fits", &plan::Plan::fits)
      .def_readonly("budget", &plan::Plan::budget)
      .def_readonly("step", &plan::Plan::step)
      .def_readonly("predicted", &plan::Plan::predicted)
      .def_property_readonly("seconds", [](const plan::Plan& plan) { return plan.seconds.count; })
      .def_readonly("smallest_budget", &plan::Plan::smallest_budget)
      .def_readonly("largest_batch", &plan::Plan::largest_batch)
      .def_readonly("micro_batch", &plan::Plan::micro_batch)
      .def_readonly("accumulate", &plan::Plan::accumulate)
      .def_readonly("stored_micro_batch", &plan::Plan::stored_micro_batch)
      .def_property_readonly(
          "letters", [](const plan::Plan& plan) { return plan::policy_letters(plan.step); });

  py::class_<plan::Planner>(module, "Planner")
      .def(py::init([](py::object make, std::int64_t batch, const std::string& precision,
                       bool exact, const std::string& optimizer, const std::string& state,
                       bool accumulates, std::int64_t other_bytes) {
             const auto by = make_by(std::move(make));
             const auto shape =
                 step_shape(batch, precision, exact, optimizer, state, accumulates, other_bytes);
             const py::gil_scoped_release free;
             return std::make_unique<plan::Planner>(by, shape);
           }),
           py::arg("make"), py::kw_only(), py::arg("batch"), py::arg("precision") = "fp32",
           py::arg("exact") = false, py::arg("optimizer") = "adamw", py::arg("state") = "fp32",
           py::arg("accumulates") = false, py::arg("other_bytes") = 0)
      .def("plan", &plan::Planner::plan, py::arg("budget"), no_gil)
      .def("predict", py::overload_cast<const StepPlan&>(&plan::Planner::predict), py::arg("step"),
           no_gil)
      .def("modes",
           [](const plan::Planner& planner) {
             std::vector<std::string> names;
             for (const Mode mode : planner.network().modes()) names.emplace_back(name(mode));
             return names;
           })
      .def(
          "of_mode",
          [](const plan::Planner& planner, const std::string& mode) {
            return planner.all(parse_mode(mode));
          },
          py::arg("mode"))
      .def(
          "seconds",
          [](const plan::Planner& planner, const StepPlan& step) {
            return planner.seconds(step).count;
          },
          py::arg("step"))
      .def(
          "measure",
          [](plan::Planner& planner, Network& network, std::int64_t budget) {
            return plan::learn_times(planner, network, {.budget = budget, .network = {}})
                .has_value();
          },
          py::arg("network"), py::arg("budget"), no_gil,
          "Measures a few steps of the network, so that plans are chosen by real times.");
}

}  // namespace

void bind_network(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<Network, std::shared_ptr<Network>>(module, "Network")
      .def(py::init(&make_network), py::arg("stacks"), py::arg("weights"), py::arg("step"),
           py::arg("block_weights") = std::vector<at::Tensor>{},
           "`block_weights`: those whose gradients stacks may give away as soon as they are final.")
      .def(
          "step",
          [](Network& network, std::int64_t samples, std::uint64_t seed, std::uint64_t step) {
            network.step(samples, std::make_shared<Pass>(seed, step));
          },
          py::arg("samples"), py::arg("seed") = 0, py::arg("step") = 0, no_gil)
      .def("set_plan", &Network::set_plan, py::arg("plan"))
      .def(
          "set_mode",
          [](Network& network, const std::string& mode) { network.set_mode(parse_mode(mode)); },
          py::arg("mode"))
      .def("plan", &Network::plan)
      .def("depths", &Network::depths)
      .def("drift", [](const Network& network) {
        const DriftReport drift = network.drift();
        return py::make_tuple(drift.worst, drift.worst_branch, drift.at_bottom);
      });
  bind_planner(module);

  py::class_<VerifyRow>(module, "VerifyRow")
      .def_property_readonly("mode",
                             [](const VerifyRow& row) { return std::string(name(row.mode)); })
      .def_readonly("max_rel_error", &VerifyRow::max_rel_error)
      .def_readonly("bit_identical", &VerifyRow::bit_identical)
      .def_readonly("missing_gradients", &VerifyRow::missing_gradients)
      .def_readonly("drift", &VerifyRow::drift)
      .def_readonly("error", &VerifyRow::error)
      .def_readonly("holds", &VerifyRow::holds);
  module.def(
      "verify",
      [](Network& network, std::int64_t batch, const std::string& precision, bool exact,
         const std::vector<StepPlan>& plans, std::uint64_t seed) {
        return verify(network, {.modes = network.modes(),
                                .plans = plans,
                                .batch = batch,
                                .precision = parse_precision(precision),
                                .arithmetic = exact ? Arithmetic::exact : Arithmetic::floating,
                                .seed = seed});
      },
      py::arg("network"), py::kw_only(), py::arg("batch"), py::arg("precision") = "fp32",
      py::arg("exact") = false, py::arg("plans") = std::vector<StepPlan>{}, py::arg("seed") = 0,
      no_gil);

  module.def(
      "record_step",
      [](Network& network, std::int64_t samples, const std::string& title) {
        TraceRecorder recorder(network);
        recorder.begin(title);
        network.step(samples, std::make_shared<Pass>(0, 0));
        const StepTrace trace = recorder.finish();
        return std::pair(step_svg(trace), chrome_trace(trace));
      },
      py::arg("network"), py::arg("samples"), py::arg("title"), no_gil);

  module.def("parse_byte_size", &text::parse_byte_size, py::arg("text"));
  module.def("bytes_text", &text::bytes_text, py::arg("bytes"));
}

}  // namespace pareprop::python
