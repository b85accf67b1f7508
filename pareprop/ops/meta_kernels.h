#pragma once

namespace pareprop {

// Note [Operators without a meta kernel]
// In C++ torch has no meta kernel for some operators that ordinary modules use: layer norm and its
// gradient, gradients of embeddings, convolutions. This gives one to all operators that the CPU has
// a kernel for. It runs that kernel on zeros and answers with the shapes: as right as the CPU, at
// the price of its time and, for that moment, its memory, which the meter does not count. Operators
// that have a meta kernel, from torch or from Python, keep it. Once a process; thread-safe.
void install_meta_kernels();

}  // namespace pareprop
