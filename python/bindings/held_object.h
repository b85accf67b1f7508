#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace pareprop::python {

namespace py = pybind11;

// Python ends a thread that asks for the GIL while the interpreter finishes.
inline bool gil_can_be_taken() {
#if PY_VERSION_HEX >= 0x030D0000
  const bool finishing = Py_IsFinalizing() != 0;
#else
  const bool finishing = _Py_IsFinalizing() != 0;
#endif
  return Py_IsInitialized() != 0 && (!finishing || PyGILState_Check() != 0);
}

// An object of Python that C++ holds, and may let go on any thread, with or without the GIL.
using HeldObject = std::shared_ptr<const py::object>;

inline HeldObject hold(py::object object) {
  return {new py::object(std::move(object)), [](const py::object* held) {
            if (!gil_can_be_taken()) return;  // the process ends: it is not let go
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

}  // namespace pareprop::python
