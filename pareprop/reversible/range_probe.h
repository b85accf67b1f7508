#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "pareprop/reversible/deferred_checks.h"
#include "pareprop/reversible/stream_arithmetic.h"

namespace pareprop {

// Sees to it that what enters exact streams, and what is added to them, fits their range. Where
// reading a value is free it is looked at on the spot; on an accelerator only the smallest and
// largest values are computed, and looked at when the checks run. In floating arithmetic, which
// carries NaN by itself, nothing is looked at.
class RangeProbe {
 public:
  RangeProbe(const StreamArithmetic& arithmetic, bool deferred)
      : arithmetic_(arithmetic), deferred_(deferred) {}

  // Throws std::invalid_argument: the stack's input `name` does not fit.
  void input(const std::string& name, const at::Tensor& x);
  // Throws std::runtime_error: `f`, which the branch at `where` adds to the stream `u`, does not
  // fit or `u` is too large.
  void addition(const std::string& where, const at::Tensor& u, const at::Tensor& f);

  // Leaves what was not looked at yet to `checks`.
  void defer_to(DeferredChecks& checks);

 private:
  struct Look {
    std::string where;
    bool is_input = false;
  };
  void look(Look look, const at::Tensor& u, const at::Tensor& f);

  StreamArithmetic arithmetic_;
  bool deferred_;
  std::vector<Look> looks_;
  std::vector<at::Tensor> extremes_;  // of each look those of f, and of u unless it is an input
};

}  // namespace pareprop
