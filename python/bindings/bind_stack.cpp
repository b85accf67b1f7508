#include <pybind11/stl.h>

#include "pareprop/ops/random_stream.h"
#include "pareprop/reversible/gradient_taker.h"
#include "pareprop/reversible/stack.h"
#include "python/bindings/bind.h"
#include "python/bindings/current_pass.h"
#include "python/bindings/python_branch.h"

namespace pareprop::python {
namespace {

using NamedList = std::vector<std::pair<std::string, at::Tensor>>;
// where, function, the extra arguments it takes, parameters, buffers
using BranchParts = std::tuple<std::string, py::object, std::vector<std::pair<int, std::string>>,
                               NamedList, NamedList>;

std::vector<NamedParameter> named(const NamedList& given) {
  std::vector<NamedParameter> result;
  for (const auto& [name, tensor] : given) result.push_back({name, tensor});
  return result;
}

Branch branch_of(const BranchParts& parts) {
  const auto& [where, function, numbers, parameters, buffers] = parts;
  std::vector<TakenExtra> extras;
  for (const auto& [number, name] : numbers) extras.push_back({number, name});
  return python_branch(where, function, std::move(extras), named(parameters), named(buffers));
}

Stack make_stack(const std::vector<BranchParts>& branches, const StackPlan& plan,
                 const StackOptions& options, const std::shared_ptr<ObserverList>& observers) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i + 1 < branches.size(); i += 2) {
    blocks.push_back({branch_of(branches[i]), branch_of(branches[i + 1])});
  }
  Stack stack(std::move(blocks), plan, options);
  stack->set_observers(observers);
  return stack;
}

using Extras = std::vector<std::optional<at::Tensor>>;
using Taker = std::shared_ptr<GradientTaker>;

CallOptions call_options(const Extras& extras, std::uint64_t seed, const Taker& taker) {
  CallOptions call;
  for (const auto& extra : extras) call.extras.push_back(extra.value_or(at::Tensor()));
  call.pass = current_pass() ? current_pass() : std::make_shared<Pass>(seed, 0, nullptr, taker);
  return call;
}

// An exception of a callback arrives in Python as it was raised.
class CallbackError : public py::error_already_set, public PassedOn {
 public:
  explicit CallbackError(const py::error_already_set& error) : py::error_already_set(error) {}
};

void tell(const HeldObject& callback, const auto&... arguments) {
  try {
    (*callback)(arguments...);
  } catch (const py::error_already_set& error) {
    throw CallbackError(error);
  }
}

StackObserver block_observer(py::object on_block) {
  return {.on_block_gradients = [held = hold(std::move(on_block))](const BlockGradients& block) {
    const py::gil_scoped_acquire gil;
    tell(held, block.block, block.parameters, block.gradients);
  }};
}

// Each task of a backward pass: kind, block, branch, lane, begin and end in seconds.
StackObserver backward_observer(py::object on_backward) {
  return {.on_backward = [held = hold(std::move(on_backward))](const TaskGraph& graph,
                                                               const Timeline& timeline) {
    const py::gil_scoped_acquire gil;
    py::list spans;
    for (const Span& span : timeline.spans) {
      const Task& task = graph[span.task];
      spans.append(py::make_tuple(std::string(name(task.kind)), task.block(),
                                  task.is_f() ? "F" : "G", span.lane, span.begin, span.end));
    }
    tell(held, spans);
  }};
}

}  // namespace

void bind_stack(py::module_& module) {
  py::class_<Watch>(module, "Watch").def("end", &Watch::end);
  py::class_<ObserverList, std::shared_ptr<ObserverList>>(module, "Observers",
                                                          "Who watches the stacks that share it.")
      .def(py::init())
      .def(
          "watch_blocks",
          [](ObserverList& observers, py::object on_block) {
            return observers.add(block_observer(std::move(on_block)));
          },
          py::arg("on_block"))
      .def(
          "watch_backward",
          [](ObserverList& observers, py::object on_backward) {
            return observers.add(backward_observer(std::move(on_backward)));
          },
          py::arg("on_backward"));
  py::class_<GradientTaker, std::shared_ptr<GradientTaker>>(module, "GradientTaker");

  // While the engine computes, the GIL is free: its lanes take it to call branches of Python.
  const py::call_guard<py::gil_scoped_release> no_gil;
  py::class_<Stack>(module, "Stack")
      .def(py::init(&make_stack), py::arg("branches"), py::arg("plan"), py::arg("options"),
           py::arg("observers").none(false))
      .def(
          "forward",
          [](Stack& stack, const at::Tensor& x1, const at::Tensor& x2, const Extras& extras,
             std::uint64_t seed, const Taker& taker) {
            return stack->forward(x1, x2, call_options(extras, seed, taker));
          },
          py::arg("x1"), py::arg("x2"), py::arg("extras"), py::arg("seed"),
          py::arg("taker") = nullptr, no_gil)
      .def(
          "reference",
          [](Stack& stack, const at::Tensor& x1, const at::Tensor& x2, const Extras& extras,
             std::uint64_t seed) {
            return stack->reference(x1, x2, call_options(extras, seed, nullptr));
          },
          py::arg("x1"), py::arg("x2"), py::arg("extras"), py::arg("seed"), no_gil)
      .def(
          "inverse",
          [](Stack& stack, const at::Tensor& y1, const at::Tensor& y2, const Extras& extras) {
            return stack->inverse(y1, y2, call_options(extras, 0, nullptr));
          },
          py::arg("y1"), py::arg("y2"), py::arg("extras"), no_gil)
      .def(
          "set_plan", [](Stack& stack, const StackPlan& plan) { stack->set_plan(plan); },
          py::arg("plan"))
      .def("plan", [](const Stack& stack) { return stack->plan(); })
      .def("drift", [](const Stack& stack) {
        const DriftReport drift = stack->drift();
        return py::make_tuple(drift.worst, drift.worst_branch, drift.at_bottom);
      });

  module.def(
      "in_pass", [] { return current_pass() != nullptr; },
      "Whether calls belong to a pass that has its own seed: of plan, verify or trace.");
  module.def("in_branch", &in_branch,
             "Whether dropout() can be called: inside of a branch, which is then computed again.");
  module.def("dropout", &dropout, py::arg("x"), py::arg("p"), no_gil);
  module.def("drop_path", &drop_path, py::arg("x"), py::arg("p"), no_gil);
}

}  // namespace pareprop::python
