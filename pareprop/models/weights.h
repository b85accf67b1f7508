#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "pareprop/io/safetensors.h"
#include "pareprop/models/model.h"

namespace pareprop::models {

// Which tensors of a file a parameter is made of.
struct NamedParts {
  std::string parameter;  // our name
  // Joined along dimension 0, each an equal share. A part may be known by several names: one of
  // them is read, the first is written.
  std::vector<std::vector<std::string>> parts;
  // Of a part in the file, where it is not the share of our shape; with as many elements.
  std::vector<std::int64_t> shape = {};
};

// The names of somebody's files.
struct NameMap {
  std::vector<NamedParts> parameters;
  // Tensors that may be there as well and are not read; one * in a name stands for any characters.
  std::vector<std::string> ignored = {};
  // Tensors that may be there if they hold what a parameter is made of: {name, our parameter}.
  std::vector<std::pair<std::string, std::string>> copies = {};
  // Goes into files that are written.
  io::SafetensorsMetadata metadata = {};
};

// Every parameter from the tensor of its own name after `prefix`.
NameMap own_names(const Model& model, const std::string& prefix = "");

// Gives every parameter of the model the values in the file, converted from whatever floating-point
// type is there to its own, on its own device. Gradients are left alone.
//
// Throws std::runtime_error when the file does not match its seal (io::SafetensorsFile), and
// std::invalid_argument that says what does not fit: tensors that are missing, not expected, of
// another shape, of integers, or not the copy that they should be. Nothing is changed then. Only a
// file that cannot be read to its end (std::runtime_error) leaves a network of old and new weights.
void load_weights(Model& model, const io::SafetensorsFile& file, const NameMap& names);
void load_weights(Model& model, const io::SafetensorsFile& file);  // under their own names

// The inverse: tensors under our names (parameters, or their gradients), divided, reshaped and
// named as the map says. Throws std::invalid_argument for a name that the map does not have.
io::NamedTensors under_names(const io::NamedTensors& ours, const NameMap& names);

// Writes what load_weights() with the same map reads, in the model's dtype, sealed
// (io::write_sealed_safetensors). `metadata` is added to that of the map. Throws what
// io::write_safetensors does.
void save_weights(const Model& model, const std::filesystem::path& path, const NameMap& names,
                  io::SafetensorsMetadata metadata = {});
void save_weights(const Model& model, const std::filesystem::path& path);  // under their own names

}  // namespace pareprop::models
