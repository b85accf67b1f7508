#pragma once

#include <cstdint>

#include "pareprop/models/model.h"

namespace pareprop::models {

// What one sample costs in a network, seen by running it on the meta device: real shapes, no
// memory.
struct Cost {
  double macs = 0.0;  // multiply-accumulates of a forward pass: matrix products and convolutions
  double activation_bytes_stored =
      0.0;  // largest live bytes of a training step, all but weights and
  double activation_bytes_reversible = 0.0;  // gradients, in modes stored and reprop
};

// Counts the multiply-accumulates of what this thread computes on the meta device, matrix products
// and convolutions, from its making on. One at a time.
class MacCounter {
 public:
  MacCounter();
  ~MacCounter();
  MacCounter(const MacCounter&) = delete;
  MacCounter& operator=(const MacCounter&) = delete;

  double macs() const;

 private:
  std::uint64_t handle_;
  double before_;
};

// REQUIRES: the weights of `model` are on the meta device. Its stack options are left changed. A
// plain network's `reversible` is that of mode checkpoint.
Cost cost_of(Model& model);

}  // namespace pareprop::models
