#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "pareprop/optim/kernels/step_kernels.h"

namespace pareprop::optim {

// Counts the steps of one parameter where they decide how is rounded: bits after a resume are those
// of a run that was not stopped.
class StepCount {
 public:
  StepCount() = default;
  // `parameter` may be on the meta device: then every step is the first.
  StepCount(std::uint64_t seed, const std::string& name, const at::Tensor& parameter);

  // Begins the next step and returns its number, from 1 on.
  std::int64_t begin_step();
  // Of the step that was begun last.
  Rounding rounding() const;

  const at::Tensor& tensor() const { return count_; }  // Long, on the host

 private:
  std::uint64_t key_ = 0;
  at::Tensor count_;
};

}  // namespace pareprop::optim
