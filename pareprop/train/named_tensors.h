#pragma once

#include <torch/nn/module.h>

#include <string>

#include "pareprop/io/safetensors.h"

namespace pareprop::train {

// The parameters that require gradient, in the order of the network, each once.
io::NamedTensors trained_parameters(const torch::nn::Module& module);

// Everything that a file holds, mapped: no memory is taken until a tensor is read.
io::NamedTensors tensors_of(const io::SafetensorsFile& file);

// Gives each tensor of `into` the values of the one with its name in `from`.
//
// Throws std::invalid_argument that lists what is missing, not expected, or of another shape or
// dtype; `what` ("the optimizer's state") begins the message. Nothing is changed then.
void copy_named(const io::NamedTensors& from, const io::NamedTensors& into,
                const std::string& what);

}  // namespace pareprop::train
