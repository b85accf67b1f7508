#pragma once

#include <cstdint>

namespace pareprop {

// Note [Operators without a meta kernel]
// In C++ torch has no meta kernel for some operators that ordinary modules use: layer norm and its
// gradient, gradients of embeddings, convolutions. This gives one to all operators that the CPU has
// a kernel for. It runs that kernel on zeros and answers with the shapes: as right as the CPU, at
// the price of its time and, for that moment, its memory, which the meter does not count. Operators
// that have a meta kernel, from torch or from Python, keep it, but for
// scaled_dot_product_attention: there torch always takes the one way that keeps all probabilities,
// and here the way that it takes on the CPU. Once a process; thread-safe.
void install_meta_kernels();

// While it lives, of what this thread's operators take on the meta device only their results count:
// torch's meta kernels from Python compute in many steps what the CPU computes in one.
class ResultsOnly {
 public:
  ResultsOnly();
  ~ResultsOnly();
  ResultsOnly(const ResultsOnly&) = delete;
  ResultsOnly& operator=(const ResultsOnly&) = delete;

 private:
  std::uint64_t handle_;
};

}  // namespace pareprop
