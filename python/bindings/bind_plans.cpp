#include <pybind11/stl.h>

#include <sstream>

#include "pareprop/graph/stack_plan.h"
#include "pareprop/reversible/stack_options.h"
#include "python/bindings/bind.h"

namespace pareprop::python {
namespace {

namespace py = pybind11;

std::vector<std::string> policy_names(const StackPlan& plan) {
  std::vector<std::string> names;
  for (const Policy policy : plan.policies) names.emplace_back(name(policy));
  return names;
}

StackPlan make_plan(const std::vector<std::string>& policies, bool overlap,
                    std::optional<int> lookahead, int deferred, int lanes,
                    std::optional<int> tail) {
  StackPlan plan{.overlap = overlap,
                 .lookahead = lookahead,
                 .deferred = deferred,
                 .lanes = lanes,
                 .tail = tail};
  for (const std::string& policy : policies) plan.policies.push_back(parse_policy(policy));
  return plan;
}

std::string shown(const StackPlan& plan) {
  std::ostringstream text;
  text << "StackPlan(policies=[";
  for (std::size_t i = 0; i < plan.policies.size(); ++i) {
    text << (i > 0 ? ", " : "") << '\'' << name(plan.policies[i]) << '\'';
  }
  text << "], overlap=" << (plan.overlap ? "True" : "False");
  if (plan.lookahead) text << ", lookahead=" << *plan.lookahead;
  text << ", deferred=" << plan.deferred << ", lanes=" << plan.lanes;
  if (plan.tail) text << ", tail=" << *plan.tail;
  text << ')';
  return text.str();
}

StackOptions make_options(const std::string& precision, bool exact, int fraction_bits,
                          double drift_limit, bool allow_unused_parameters) {
  return {.precision = parse_precision(precision),
          .arithmetic = exact ? Arithmetic::exact : Arithmetic::floating,
          .fraction_bits = fraction_bits,
          .drift_limit = drift_limit,
          .allow_unused_parameters = allow_unused_parameters};
}

}  // namespace

void bind_plans(py::module_& module) {
  module.def("mode_names", [] {
    std::vector<std::string> names;
    for (const Mode mode : preset_modes()) names.emplace_back(name(mode));
    return names;
  });

  py::class_<StackPlan>(module, "StackPlan",
                        "How one stack is trained: what the forward pass keeps of each block, and "
                        "how the backward pass is scheduled.")
      .def(py::init(&make_plan), py::arg("policies"), py::kw_only(), py::arg("overlap") = false,
           py::arg("lookahead") = py::none(), py::arg("deferred") = 2, py::arg("lanes") = 2,
           py::arg("tail") = py::none())
      .def_static(
          "of_mode",
          [](const std::string& mode, int depth) { return plan_of(parse_mode(mode), depth); },
          py::arg("mode"), py::arg("depth"))
      .def_property_readonly("policies", &policy_names)
      .def_readonly("overlap", &StackPlan::overlap)
      .def_readonly("lookahead", &StackPlan::lookahead)
      .def_readonly("deferred", &StackPlan::deferred)
      .def_readonly("lanes", &StackPlan::lanes)
      .def_readonly("tail", &StackPlan::tail)
      .def(
          "__eq__", [](const StackPlan& a, const StackPlan& b) { return a == b; },
          py::is_operator())
      .def("__repr__", &shown)
      .def(py::pickle(
          [](const StackPlan& plan) {
            return py::make_tuple(policy_names(plan), plan.overlap, plan.lookahead, plan.deferred,
                                  plan.lanes, plan.tail);
          },
          [](const py::tuple& state) {
            return make_plan(state[0].cast<std::vector<std::string>>(), state[1].cast<bool>(),
                             state[2].cast<std::optional<int>>(), state[3].cast<int>(),
                             state[4].cast<int>(), state[5].cast<std::optional<int>>());
          }));

  py::class_<StepPlan>(module, "StepPlan", "A StackPlan for each stack of a network.")
      .def(py::init([](std::vector<StackPlan> stacks, bool recompute_between) {
             return StepPlan{.stacks = std::move(stacks), .recompute_between = recompute_between};
           }),
           py::arg("stacks"), py::kw_only(), py::arg("recompute_between") = false)
      .def_readonly("stacks", &StepPlan::stacks)
      .def_readonly("recompute_between", &StepPlan::recompute_between)
      .def("overlaps", &StepPlan::overlaps)
      .def("stores_all", &StepPlan::stores_all)
      .def_property_readonly(
          "mode", [](const StepPlan& plan) { return std::string(name(nearest_mode(plan))); })
      .def(
          "__eq__", [](const StepPlan& a, const StepPlan& b) { return a == b; }, py::is_operator())
      .def(py::pickle(
          [](const StepPlan& plan) { return py::make_tuple(plan.stacks, plan.recompute_between); },
          [](const py::tuple& state) {
            return StepPlan{.stacks = state[0].cast<std::vector<StackPlan>>(),
                            .recompute_between = state[1].cast<bool>()};
          }));

  py::class_<StackOptions>(module, "StackOptions", "The numerics of a stack.")
      .def(py::init(&make_options), py::kw_only(), py::arg("precision") = "fp32",
           py::arg("exact") = false, py::arg("fraction_bits") = 0, py::arg("drift_limit") = 0.0,
           py::arg("allow_unused_parameters") = false);
}

}  // namespace pareprop::python
