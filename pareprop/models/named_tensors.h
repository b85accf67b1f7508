#pragma once

#include <c10/util/ArrayRef.h>
#include <torch/nn/module.h>

#include <functional>
#include <string>

#include "pareprop/io/safetensors.h"

namespace pareprop::models {

// The parameters that require gradient, in the order of the network, each once.
io::NamedTensors trained_parameters(const torch::nn::Module& module);

// Gives each tensor of `into` the values of the one with its name in the file, without a copy of
// them beside it. A sealed file is verified first.
//
// Throws std::invalid_argument that says what is missing, not expected, or of another shape or
// dtype; `what` ("the optimizer's state") begins the message. Nothing is changed then. Throws
// std::runtime_error when the file is damaged or cannot be read.
void copy_named(const io::SafetensorsFile& from, const io::NamedTensors& into,
                const std::string& what);
// The same from several files together. They may hold more: only names that `concerns` is true for
// have to be expected.
void copy_named(c10::ArrayRef<io::SafetensorsFile> from, const io::NamedTensors& into,
                const std::string& what, const std::function<bool(const std::string&)>& concerns);

}  // namespace pareprop::models
