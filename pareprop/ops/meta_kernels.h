#pragma once

namespace pareprop {

// Note [Operators without a meta kernel]
// In C++ torch has no meta kernel for some operators that ordinary modules use: gradients of layer
// norm, embeddings, convolutions. This gives them one that runs the CPU's kernel on zeros, once for
// each call, and answers with the shapes: as right as the CPU, at the price of its time and, for
// that moment, its memory, which the meter does not count. Operators that have a meta kernel, or
// get one from Python, keep it. Once a process; thread-safe.
void install_meta_kernels();

}  // namespace pareprop
