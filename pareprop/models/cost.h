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

// REQUIRES: the weights of `model` are on the meta device. A plain network's `reversible` is that
// of mode checkpoint.
Cost cost_of(Model& model);

}  // namespace pareprop::models
