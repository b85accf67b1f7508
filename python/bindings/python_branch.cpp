#include "python/bindings/python_branch.h"

#include <torch/csrc/autograd/python_variable.h>

#include <optional>

namespace pareprop::python {
namespace {

// What weights in bf16 or half precision compute in; none: in the type of the streams.
std::optional<at::ScalarType> lower_precision(const std::vector<NamedParameter>& parameters) {
  for (const NamedParameter& parameter : parameters) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    if (type == at::kBFloat16 || type == at::kHalf) return type;
  }
  return std::nullopt;
}

py::object argument(const at::Tensor& extra) {
  return extra.defined() ? py::cast(extra) : py::none();
}

}  // namespace

Branch python_branch(std::string where, py::object function, std::vector<TakenExtra> extras,
                     std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers) {
  const auto call = [where = std::move(where), function = hold(std::move(function)),
                     extras = std::move(extras),
                     parameters](const at::Tensor& x, const BranchCall& branch_call) {
    // Asked in every call: Module.to() changes the type of the same tensors.
    const auto lower = lower_precision(parameters);
    const at::Tensor input = lower ? x.to(*lower) : x;
    const py::gil_scoped_acquire gil;
    py::list positional;
    py::dict named;
    positional.append(py::cast(input));
    for (const auto& [number, name] : extras) {
      const py::object given = argument(branch_call.extras[static_cast<std::size_t>(number)]);
      if (name.empty()) {
        positional.append(given);
      } else {
        named[py::str(name)] = given;
      }
    }
    const py::object y = (*function)(*positional, **named);
    if (!THPVariable_Check(y.ptr())) {
      throw py::type_error(where + ": the branch returned an object of type '" +
                           Py_TYPE(y.ptr())->tp_name + "'; expected one tensor");
    }
    return THPVariable_Unpack(y.ptr());
  };
  return {call, std::move(parameters), std::move(buffers)};
}

}  // namespace pareprop::python
