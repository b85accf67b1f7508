#include "python/bindings/bind.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "The engine of pareprop. Use the package pareprop, which wraps it.";
  pareprop::python::bind_plans(module);
  pareprop::python::bind_stack(module);
  pareprop::python::bind_network(module);
  pareprop::python::bind_choice(module);
  pareprop::python::bind_models(module);
  pareprop::python::bind_memory(module);
  pareprop::python::bind_optimizers(module);
}
