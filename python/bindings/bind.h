#pragma once

#include <torch/csrc/utils/pybind.h>

// One function for each part of the extension module pareprop._core.
namespace pareprop::python {

void bind_plans(pybind11::module_& module);    // policies, StackPlan, StepPlan, StackOptions
void bind_stack(pybind11::module_& module);    // Stack, dropout, drop_path
void bind_network(pybind11::module_& module);  // Network, Planner, verify, record_step
void bind_choice(pybind11::module_& module);   // which blocks of other networks to checkpoint
void bind_models(pybind11::module_& module);   // Model, model_names
void bind_memory(pybind11::module_& module);   // the caching allocator and its meter
void bind_optimizers(pybind11::module_& module);

}  // namespace pareprop::python
