#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pareprop/reversible/branch.h"
#include "python/bindings/held_object.h"

namespace pareprop::python {

// An extra argument of the call that a branch takes.
struct TakenExtra {
  int number = 0;    // in the call
  std::string name;  // empty: by position
};

// Calls the function with the GIL, on the thread that asks; an exception of Python passes through
// with its traceback. Whoever calls the branch must not wait for another thread with the GIL held.
//
// Weights in a lower precision than the streams: the function gets its input in theirs. `where`
// begins messages: "block 3, branch F".
Branch python_branch(std::string where, py::object function, std::vector<TakenExtra> extras,
                     std::vector<NamedParameter> parameters, std::vector<NamedParameter> buffers);

}  // namespace pareprop::python
